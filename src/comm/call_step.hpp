// The step of a trace that a whole call is.
#pragma once

#include <cstdint>
#include <string_view>

#include "collectives/algorithm.hpp"
#include "collectives/compressed.hpp"
#include "core/record.hpp"

namespace pith {

// Its buffers are known from then on. `algorithm` lives for ever; empty: none. Returns the id.
inline std::uint64_t begin_call(Recorder& recorder, std::uint32_t number,
                                const CollectiveArgs& args, std::string_view algorithm) {
  recorder.name_buffer({args.send.data, args.send.size}, "send");
  recorder.name_buffer({args.recv.data, args.recv.size}, "recv");
  for (const Message& message : args.messages) {
    recorder.name_buffer({message.data.data, message.data.size}, message.sends ? "send" : "recv");
  }
  Step step;
  step.op = Step::Op::call;
  step.call = number;
  step.bytes = args.send.size;
  for (const CompressedTensor& tensor : args.tensors) {
    const std::size_t bytes = tensor.count * size_of(tensor.type);
    recorder.name_buffer({tensor.send, tensor.send ? bytes : 0}, "send");
    recorder.name_buffer({tensor.recv, tensor.recv ? bytes : 0}, "recv");
    step.bytes += bytes;
  }
  step.name = name_of(args.collective);
  step.algorithm = algorithm;
  return recorder.begin(step, {}, {});
}

}  // namespace pith
