// Stalled calls: ranks report them, the root asks the others which call they are in, and blames
// ranks that disagree or do not come.
//
// Stall reports and the root's questions are sent repeatedly. Each neighbour answers at once, and
// one that does not answer gets no more of them: what a stopped rank does not read stays in our
// memory.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "control/agreement.hpp"
#include "control/capture_disputes.hpp"
#include "control/control_context.hpp"
#include "control/control_messages.hpp"
#include "control/control_tree.hpp"
#include "control/parent_watch.hpp"
#include "control/revocation.hpp"
#include "control/watchers.hpp"

namespace pith {

// A rank of the job, and what it called.
using NotedCall = std::pair<const int, CallNote>;

class StallWatch {
 public:
  StallWatch(const ControlContext& context, ControlTree& tree, Revocation& revocation,
             Watchers& watchers, Agreement& agreement, const ParentWatch& parent_watch)
      : context_(context),
        tree_(tree),
        revocation_(revocation),
        watchers_(watchers),
        agreement_(agreement),
        parent_watch_(parent_watch),
        captures_(context) {}

  void turn(const Stalls& stalls);
  // A message showed that ranks disagree about a call.
  void suspect(CommKey comm, const CallNote& call);
  void hear_stall(Unpacker& in, const std::string& whole);
  void hear_question(Unpacker& in, const std::string& whole);
  void hear_answer(Unpacker& in, const std::string& whole);

  void forget(CommKey comm);
  void add_known(std::set<CommKey>& known) const;

 private:
  // What the root knows of one stalled call.
  struct Inquiry {
    std::vector<int> members;
    std::map<int, CallNote> notes;  // by rank of the job
    std::uint64_t asked_ns = 0;
    bool again = false;  // ask again as soon as that is due
  };
  using InquiryKey = std::pair<CommKey, std::uint32_t>;

  void report_calls(const Stalls& stalls);
  void report_agreements();
  void warn_of_agreements();
  void report(CommKey comm, const Watchers::Member& member, const Stall& stall);
  void judge(const StallReport& report);
  void ask(const InquiryKey& key, Inquiry& inquiry);
  void ask_again();
  void compare(const InquiryKey& key, Inquiry& inquiry);
  bool is_due(std::uint64_t last_ns) const;

  const ControlContext& context_;
  ControlTree& tree_;
  Revocation& revocation_;
  Watchers& watchers_;
  Agreement& agreement_;
  const ParentWatch& parent_watch_;
  CaptureDisputes captures_;
  std::map<InquiryKey, Inquiry> inquiries_;
};

}  // namespace pith
