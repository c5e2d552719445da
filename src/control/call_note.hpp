// A call of a communicator as one rank sees it, for comparison with others and for words.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace pith {

// One thing that ranks may disagree about: {"count", "10"}; of a compressor's keys {"density=",
// "0.01"}.
struct CallFact {
  std::string name;
  std::string value;

  bool is_key() const { return name.ends_with('='); }
};

// Two ranks disagree where digests differ.
struct CallNote {
  std::uint32_t number = 0;  // 0: not a call of all ranks
  std::uint64_t digest = 0;
  std::string text;  // "pithAllReduce of 10 float32, sum"; of a compressor the scheme alone
  // Of a call that is an agreement and takes no number: it stands before the call of this one.
  std::uint32_t round = 0;           // that agreement's; 0: it is none
  std::vector<int> without = {};     // ranks of the job that may be in anything meanwhile
  std::vector<CallFact> facts = {};  // what the text says, and the keys; none of an agreement
};

// "call 3 (pithAllReduce of 10 float32, sum)"; of pairs the text alone.
inline std::string title_of(const CallNote& call) {
  if (call.number == 0) return call.text;
  return "call " + std::to_string(call.number) + " (" + call.text + ")";
}

}  // namespace pith
