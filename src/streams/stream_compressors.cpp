#include "streams/stream_compressors.hpp"

#include "collectives/chooser.hpp"
#include "streams/cuda_vectors.hpp"
#include "streams/stream_memory.hpp"

namespace pith {

Error StreamCompressors::check(const CompressedArgs& args) {
  const bool on_device = uses_device(args);
  if (on_device && !vectors_) {
    const Expected<CudaVectors*> found = CudaVectors::of(device_.cuda());
    if (!found) return found.error();
    vectors_ = *found;
  }
  for (const CompressedTensor& tensor : args.tensors) {
    const Compressor& compressor = *tensor.compressor;
    if (Error error = compressor.check_move_to(on_device ? vectors_ : nullptr)) return error;
  }
  return {};
}

Error StreamCompressors::place(const CompressedArgs& args) {
  if (Error error = check(args)) return error;
  const bool on_device = uses_device(args);
  const Chooser& chooser = *device_.context().chooser;
  std::size_t all = 0;
  for (const CompressedTensor& tensor : args.tensors) all += tensor.count;
  for (const CompressedTensor& tensor : args.tensors) {
    Compressor& compressor = *tensor.compressor;
    if (Error error = compressor.move_to(on_device ? vectors_ : nullptr)) return error;
    compressor.shape(tensor.count, tensor.type);
    const Spec& spec = compressor.spec();
    // Ranks on devices agree on no other way than the nominal one, but a vector may come from the
    // host with its times.
    const bool chosen = args.tensors[0].compressor->bypass_control.dense;
    const bool in_factors = rank_of(spec) > 0 && !draws_factors(spec);
    const bool whole = !spec.sparse() && (!in_factors || starts_dense(spec, compressor.step));
    const bool dense = whole || spec.by_host || spec.quantises() || spec.chooses_scheme() ||
                       (spec.may_bypass &&
                        (spec.adapts() || chosen || chooser.is_faster_dense(spec, all, nullptr)));
    if (on_device && dense) compressor.make_room_for_whole();
  }
  return {};
}

Error StreamCompressors::take(const CompressedArgs& args, const HeldCompressors& held) {
  if (Error error = place(args)) return error;
  for (const auto& compressor : held.all()) bound_.bind(compressor);
  return {};
}

}  // namespace pith
