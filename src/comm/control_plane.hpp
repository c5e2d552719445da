// The control plane: what the ranks of a job tell each other besides data. Who has died, which
// communicators are revoked and why, agreement, and why a call does not get on.
//
// Ranks form a tree: those that live, in the order of their numbers, as a heap of `fanout`. The
// lowest live rank is its root. What is known spreads as facts, which only ever grow in number, so
// that ranks with different knowledge may build different trees for a while: whoever learns of a
// death computes its parent anew and tells it all it knows, whoever hears something new passes it
// on, and once nothing is new all have the same facts and hence the same tree.
//
// A rank that has stopped is not dead, and may be above others who have an agreement of their own.
// They pass it by: its parent is theirs until it answers. Only the root cannot be passed by, for it
// may have decided already.
//
// Nobody knows how long such a rank sleeps, and what is sent to it lies in our memory. So what
// ranks say again and again, that they stand still, and what the root asks because of that, is
// answered by each neighbour at once, and where no answer comes it is not said any more: facts,
// results, contributions and who is missing wait for those who sleep, and suspicions.
//
// Agreement is a gather: every participant contributes a blob, the root decides when all that must
// have contributed, and the result goes to all. When the root dies, participants contribute to the
// next one, or tell it the result if they have it. A result moves along the same connections as the
// facts and ahead of them, so the new root calls the roll: once all that live have answered, there
// is no result that it does not know, and it may decide. No two live ranks see different results.
//
// A communicator is over when each of its members has let go of it, has died or has left: nobody
// can ask after it any more. The root finds that out and says so, and all forget what they know of
// it, so that a job may make and destroy communicators for ever.
//
// Handlers instead of coroutines: facts have no order, so there is nothing to await. The same code
// runs on sockets, between threads, and in virtual time; it never waits and has no thread of its
// own. Thread-safe; watchers are called by whoever calls turn(), without the lock.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "comm/control_wire.hpp"
#include "comm/packing.hpp"
#include "core/error.hpp"

namespace pith {

// Names a communicator among all of the job.
using CommKey = std::uint64_t;

// One thing that ranks may disagree about: {"count", "10"}; of a compressor's keys {"density=",
// "0.01"}.
struct CallFact {
  std::string name;
  std::string value;

  bool is_key() const { return name.ends_with('='); }
};

// A call of a communicator as one rank sees it. Two ranks disagree where digests differ.
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
std::string title_of(const CallNote& call);

// A call that gets no further.
struct Stall {
  CallNote call;
  double seconds = 0;       // without progress
  int waits_for = -1;       // rank of the communicator, where known
  std::string absent = {};  // "rank 1, rank 3": of an agreement who has not come, where known
};

// A communicator, as the control plane needs it. No function may wait. All but find_call and
// refusal_of may use the control plane.
class CommWatcher {
 public:
  // Once: no operation can succeed any more. `rank` of the error is one of the communicator.
  virtual void on_revoked(const Error& error) = 0;
  // Once for each: the process or host of the rank that the error names is gone. That alone revokes
  // nothing.
  virtual void on_dead(const Error& error) = 0;
  // The call of this number, if it has begun here and is not forgotten yet.
  virtual std::optional<CallNote> find_call(std::uint32_t number) = 0;
  // Why the call of this number, which has not begun here, will be refused: a rank has died. Those
  // who are in it wait in vain.
  virtual Error refusal_of(std::uint32_t number) = 0;
  // Every turn; tells of a call that does not get on.
  virtual std::optional<Stall> look(std::uint64_t now_ns) = 0;
  // A stall has lasted so long that whoever reads the log should know.
  virtual void on_stalled(const Stall& stall) = 0;

 protected:
  ~CommWatcher() = default;
};

struct GatherKey {
  CommKey comm = 0;
  std::uint32_t round = 0;
  auto operator<=>(const GatherKey&) const = default;
};

// What all participants get alike.
struct GatherResult {
  Error error;
  std::vector<int> dead;             // ranks of the job that were dead when it was decided
  std::map<int, std::string> blobs;  // by rank of the job
};

struct ControlOptions {
  int rank = 0;
  int ranks = 1;
  int fanout = 32;
  double timeout_s = 300;  // 0: never
  double report_s = 0.25;  // without progress, before the root hears of a call
  double warn_s = 10;      // and before there is a line in the log
};

class ControlPlane final : public ControlEars {
 public:
  ControlPlane(const ControlOptions& options, ControlWire& wire);

  // Joins the tree. The wire must be ready to send.
  void start(std::uint64_t now_ns);
  // Calls watchers and callbacks, and does what time demands: call it about every 100 ms, and soon
  // after anything has arrived.
  void turn(std::uint64_t now_ns);
  // This rank will leave in order, so that nobody takes its end for a death: it waits for those
  // who are about to call it, tells its neighbours, and hears from its parent that it has passed it
  // on. True: it may go now. Ask again after a turn. `ends`: its process does, as the others hear.
  bool try_to_leave(bool ends = false);
  // Whatever comes is not heard any more.
  void close();

  void on_message(int from, std::string_view message) override;
  void on_lost(int rank, std::string_view how) override;
  void on_unreachable(int rank, std::string_view how) override;
  void on_hung_up(int rank) override;

  // `members`: ranks of the job, by rank of the communicator. A communicator that was revoked
  // before hears of it in the next turn. After remove() the watcher is not called any more. Every
  // member removes it, also one that could not make it and has not added it.
  void add(CommKey comm, std::vector<int> members, CommWatcher& watcher);
  void remove(CommKey comm, const std::vector<int>& members);
  // Here and at all members. The first cause counts. `known`: its own watcher says so.
  void revoke(CommKey comm, const Error& error, bool known = true);
  // A message showed that ranks disagree about this call: the root compares and revokes.
  void suspect(CommKey comm, const CallNote& call);

  enum class Need {
    all,   // every participant; a death or a revoked communicator is an error
    live,  // those participants that live and still hold the communicator
  };
  // Collective over the participants, in the same order of keys: ranks of the job, by the rank by
  // which errors name them; -1: nobody. `done` is called from turn(). A member that is left out,
  // has stopped and is in the way of the others is given up as if it had died. `call`: who is in
  // another one disagrees, and all get that error; number 0: nobody is compared.
  using Done = std::function<void(const GatherResult&)>;
  void gather(const GatherKey& key, Need need, const std::vector<int>& participants,
              std::string blob, Done done, CallNote call = {});

  // Ranks of the job whose process or host is gone, as far as is known here: the dead, and those
  // who left because their process ended.
  std::vector<int> dead() const;
  bool any_died() const;
  // Why, or empty.
  std::string cause_of(int rank) const;
  // What has revoked the communicator, as far as it is known here, also before it is added.
  Error revocation_of(CommKey comm) const;
  int parent() const;
  // Connections of the tree that this rank has once it stands.
  std::size_t neighbours() const;
  // Communicators of which this rank still knows anything, but for results of a limited size.
  std::vector<CommKey> remembered() const;

 private:
  struct Member {
    std::vector<int> ranks;
    CommWatcher* watcher = nullptr;
    bool told = false;              // the watcher knows that it is revoked
    std::set<int> told_dead = {};   // of whom it knows that they are; ranks of the job
    std::uint64_t reported_ns = 0;  // the last report of a stall
    bool warned = false;            // of the stall that lasts
  };
  struct Pending {
    Need need;
    std::vector<int> participants;
    std::string blob;
    Done done;
    std::uint64_t since_ns = 0;
    CallNote call = {};
    std::uint64_t reported_ns = 0;  // of the call
    std::vector<int> missing = {};  // participants, as the root says
    bool warned = false;
  };
  // At the root, and at those on the way, who tell it a new parent.
  struct Collecting {
    Need need = Need::all;
    std::vector<int> participants;
    std::map<int, std::string> blobs;
    std::uint64_t since_ns = 0;
    std::vector<int> missing;  // as was told last
    std::uint64_t told_ns = 0;
  };
  struct Inquiry {
    std::vector<int> members;
    std::map<int, CallNote> notes;  // by rank of the job
    std::uint64_t asked_ns = 0;
    bool again = false;  // to be asked as soon as that is due
  };
  using InquiryKey = std::pair<CommKey, std::uint32_t>;
  // What a rank stands still in, as it said last.
  struct Standing {
    Stall stall;
    std::uint64_t heard_ns = 0;
  };
  // Who has let go of a communicator; nobody yet, perhaps, of one that is revoked.
  struct Gone {
    std::vector<int> members;
    std::set<int> ranks;
  };
  enum class Kind : std::uint8_t;

  // Who leaves in order may look dead to those who have not heard of it yet.
  bool is_dead(int rank) const { return dead_.contains(rank) && !left_.contains(rank); }
  bool lives(int rank) const {
    return !dead_.contains(rank) && !left_.contains(rank) && !unreached_.contains(rank);
  }
  bool is_root() const { return parent_ < 0; }
  static Packer message(Kind kind);
  static bool wants_answer(Kind kind);

  void refresh_tree();
  void say_hello();
  void hear_hello(Unpacker& in, int from);
  std::string all_facts() const;
  void hear_facts(Unpacker& in, int from);
  void spread(const std::string& message, int except);
  void send_up(const std::string& message);
  void send_down(const std::string& message);
  void ask(int neighbour, const std::string& message);
  void acknowledge(int from);

  void note_dead(int rank, std::string_view how, int from);
  void give_up();
  void refuse(const GatherKey& key, Pending& pending, const Error& error);
  void note_left(int rank, bool ended, int from);
  void give_up_unreached();
  void look_for_children();
  std::vector<int> expected_children() const;
  void announce_departure();
  static std::string departure(int rank, bool ended);
  std::vector<int> gone_for_good() const;
  void note_gone(CommKey comm, const std::vector<int>& members, int rank, int from);
  void hear_gone(Unpacker& in, int from);
  void look_at_all_gone();
  bool is_over(const Gone& gone) const;
  void find_over();
  void note_over(CommKey comm, int from);
  bool tell_if_over(CommKey comm, int from);
  void note_revoked(CommKey comm, const std::vector<int>& members, const Error& error, int from);
  void tell_watchers();
  void tell_of_dead(CommKey comm, Member& member);
  void tell_revoked(CommKey comm, Member& member, const Error& error);

  void hear(int from, std::string_view text);
  static void drop_unnamed(std::vector<int>& participants, const std::vector<int>& named);
  void hear_contribution(Unpacker& in, const std::string& whole, int from);
  void deliver(const GatherKey& key, Pending& pending, std::string_view packed);
  void hear_result(Unpacker& in, const std::string& whole, int from);
  void contribute(const GatherKey& key, const Pending& pending);
  static std::string pack_contribution(const GatherKey& key, Need need,
                                       const std::vector<int>& participants, int rank,
                                       const std::string& blob);
  void hear_roll(Unpacker& in, const std::string& whole);
  void hear_present(Unpacker& in, const std::string& whole);
  bool all_present();
  void decide_all();
  void decide(GatherKey key, Collecting& collecting);
  Error cause_of_absence(int place, const std::vector<int>& participants) const;
  void tell_missing(const GatherKey& key, Collecting& collecting, const std::vector<int>& missing);
  void hear_missing(Unpacker& in, const std::string& whole);
  static Error too_late();
  std::string pack_result(const GatherKey& key, const Error& error,
                          const std::map<int, std::string>& blobs) const;
  void conclude(GatherKey key, const Error& error, const std::map<int, std::string>& blobs);
  void keep_result(const GatherKey& key, std::string_view packed);
  void drop_oldest();
  void forget_results(CommKey comm);

  using Stalls = std::map<CommKey, Stall>;
  Stalls look_for_stalls(std::uint64_t now_ns);
  void report(const Stalls& stalls);
  void report_agreements();
  void warn_of_agreements();
  std::optional<CallNote> find_agreement(CommKey comm, std::uint32_t number) const;
  bool is_decided(const GatherKey& key) const {
    return results_.contains(key) || dropped_.contains(key);
  }
  void watch_parent(const Stalls& stalls);
  double silence_of_parent() const;
  bool parent_is_excluded() const;
  bool parent_is_beside(const Stalls& stalls) const;
  bool has_parent(int rank) const;
  void give_up_parent(double silent);
  void pass_by_parent();
  Error cause_of_wait(const std::vector<int>& members, int waits_for, double waited,
                      double silent) const;
  double since(std::uint64_t then_ns) const { return static_cast<double>(now_ns_ - then_ns) / 1e9; }
  void report(CommKey comm, const Member& member, const Stall& stall);
  void pass_up(const Stall& stall, const std::string& whole);
  void hear_stall(Unpacker& in, const std::string& whole);
  void inquire(const InquiryKey& key, Inquiry& inquiry);
  void inquire_again();
  void hear_question(Unpacker& in, const std::string& whole);
  void hear_answer(Unpacker& in, const std::string& whole);
  using Noted = std::pair<const int, CallNote>;  // a rank of the job, and what it called
  static bool disagree(const Noted& one, const Noted& other);
  static std::pair<const Noted*, const Noted*> find_dispute(const Inquiry& inquiry);
  void compare(const InquiryKey& key, Inquiry& inquiry);
  void note_standing(CommKey comm, const std::vector<int>& members, int rank, const Stall& stall);
  bool all_stand(const std::vector<int>& members, const std::map<int, Standing>& standing) const;
  void forget_standing();
  void compare_captures(CommKey comm, const std::vector<int>& members);
  Error blame(const InquiryKey& key, const Inquiry& inquiry, int reporter,
              const Stall& stall) const;

  const ControlOptions options_;
  ControlWire& wire_;
  mutable std::mutex mutex_;
  std::mutex calling_;  // held while watchers are called; remove() waits for it
  std::uint64_t now_ns_ = 0;

  // facts
  std::map<int, std::string> dead_;  // rank of the job: why
  std::set<int> left_;
  std::set<int> ended_;  // of these, whose process has ended
  std::map<CommKey, Error> revoked_;
  std::map<CommKey, Gone> gone_;  // for the root
  std::set<CommKey> over_;        // the last ones that are over: late news of them means nothing
  std::deque<CommKey> over_order_;
  std::set<CommKey> maybe_over_;  // of gone_, to be looked at in the next turn

  bool started_ = false;
  bool leaving_ = false;
  bool ending_ = false;         // its process, too
  bool announced_ = false;      // to the present neighbours
  bool farewell_said_ = false;  // announced once, to whatever neighbours
  bool acknowledged_ = false;   // by the present parent
  int parent_ = -1;
  std::uint64_t parent_since_ns_ = 0;
  std::uint64_t parent_heard_ns_ = 0;
  std::uint64_t pinged_ns_ = 0;  // 0: nothing is waited for
  std::uint64_t silent_since_ns_ = 0;
  std::set<int> passed_by_;  // that this rank should have for a parent, when they answer again
  std::set<int> children_;   // that have said hello
  std::map<int, std::uint64_t> unanswered_since_ns_;  // what neighbours were asked
  struct Unreached {
    std::string how;
    std::uint64_t since_ns = 0;
  };
  std::map<int, std::uint64_t> awaited_since_ns_;  // children that have not called yet
  std::map<int, Unreached> unreached_;             // dead, unless somebody knows better
  std::string roll_;                               // the last call of the roll, for new children
  bool must_call_roll_ = false;                    // at a root that was not the first one
  std::uint64_t roll_since_ns_ = 0;
  std::uint32_t roll_facts_ = 0;  // deaths and departures that were known at the call
  std::set<int> present_;         // that have answered
  std::map<CommKey, Member> members_;
  std::map<GatherKey, Pending> pending_;
  std::map<GatherKey, std::string> results_;
  std::deque<GatherKey> result_order_;
  std::size_t result_bytes_ = 0;
  std::set<GatherKey> dropped_;  // the last results that were no longer kept
  std::deque<GatherKey> dropped_order_;
  std::map<GatherKey, Collecting> collecting_;
  std::map<InquiryKey, Inquiry> inquiries_;
  std::map<CommKey, std::map<int, Standing>> standing_;           // at the root, by rank of the job
  std::vector<std::pair<CommKey, std::function<void()>>> ready_;  // for this turn, unlocked
};

}  // namespace pith
