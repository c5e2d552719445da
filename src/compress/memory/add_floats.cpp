#include "compress/memory/add_floats.hpp"

#include <algorithm>
#include <cstring>

#include "core/sparse_kernel_args.hpp"

namespace pith {

void add_reachable(Compute& vectors, Compute& reachable, const AddedFloats& added) {
  const Scratch found(reachable, sizeof(PassResult));
  vectors.run<AccumulateKernel>({.accumulator = added.to,
                                 .gradient = added.values,
                                 .type = DType::f32,
                                 .count = added.count,
                                 .fresh = added.fresh,
                                 .result = reinterpret_cast<PassResult*>(found.bytes().data)});
}

void add_floats(Compute& host, DeviceVectors* device, const AddedFloats& added) {
  if (!device) return add_reachable(host, host, added);
  constexpr std::size_t at_once = std::size_t{1} << 20;
  const Scratch copied(device->pinned(), std::min(added.count + 1, at_once) * sizeof(float));
  for (std::size_t done = 0; done < added.count; done += at_once) {
    const std::size_t count = std::min(at_once, added.count - done);
    std::memcpy(copied.bytes().data, added.values + done * sizeof(float), count * sizeof(float));
    add_reachable(device->compute(), device->pinned(),
                  {added.to + done, copied.bytes().data, count, added.fresh});
  }
}

}  // namespace pith
