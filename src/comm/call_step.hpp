// Records a whole call as a step of a trace, by kind of call, and names its buffers. Each function
// returns the step's id. `algorithm` must point to static storage.
#pragma once

#include <cstdint>
#include <string_view>

#include "collectives/call_args.hpp"
#include "core/record.hpp"

namespace pith {

inline std::uint64_t begin_call(Recorder& recorder, std::uint32_t number, std::size_t bytes,
                                std::string_view name, std::string_view algorithm) {
  Step step;
  step.op = Step::Op::call;
  step.call = number;
  step.bytes = bytes;
  step.name = name;
  step.algorithm = algorithm;
  return recorder.begin(step, {}, {});
}

inline std::uint64_t begin_call(Recorder& recorder, std::uint32_t number,
                                const CollectiveArgs& args, std::string_view algorithm) {
  recorder.name_buffer({args.send.data, args.send.size}, "send");
  recorder.name_buffer({args.recv.data, args.recv.size}, "recv");
  return begin_call(recorder, number, args.send.size, name_of(args), algorithm);
}

inline std::uint64_t begin_call(Recorder& recorder, std::uint32_t number,
                                const CompressedArgs& args) {
  std::size_t all = 0;
  for (const CompressedTensor& tensor : args.tensors) {
    const std::size_t bytes = tensor.count * size_of(tensor.type);
    recorder.name_buffer({tensor.send, tensor.send ? bytes : 0}, "send");
    recorder.name_buffer({tensor.recv, tensor.recv ? bytes : 0}, "recv");
    all += bytes;
  }
  return begin_call(recorder, number, all, name_of(Collective::allreduce),
                    args.tensors[0].compressor->spec().stated().name);
}

inline std::uint64_t begin_call(Recorder& recorder, std::uint32_t number, const PairArgs& args) {
  for (const Message& message : args.messages) {
    recorder.name_buffer({message.data.data, message.data.size}, message.sends ? "send" : "recv");
  }
  return begin_call(recorder, number, 0, "point_to_point", "");
}

}  // namespace pith
