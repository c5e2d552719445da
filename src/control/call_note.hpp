// A call of a communicator as one rank sees it, for comparison with other ranks and for messages.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace pith {

// One thing that ranks may disagree about: {"count", "10"}; for a key of a compressor {"density=",
// "0.01"}.
struct CallFact {
  std::string name;
  std::string value;

  bool is_key() const { return name.ends_with('='); }
};

// Two ranks disagree if their digests differ.
struct CallNote {
  std::uint32_t number = 0;  // 0: not a call of all ranks
  std::uint64_t digest = 0;
  std::string text;  // "pithAllReduce of 10 float32, sum"; of a compressor only the scheme
  // For a call that is an agreement and takes no number: `number` is that of the next call.
  std::uint32_t round = 0;           // of the agreement; 0: it is none
  std::vector<int> without = {};     // ranks of the job that take no part and may be in any call
  std::vector<CallFact> facts = {};  // what the text says, and the keys; empty for an agreement
};

// "call 3 (pithAllReduce of 10 float32, sum)"; the text alone for messages between pairs.
inline std::string title_of(const CallNote& call) {
  if (call.number == 0) return call.text;
  return "call " + std::to_string(call.number) + " (" + call.text + ")";
}

}  // namespace pith
