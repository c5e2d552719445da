// A communicator of one rank: the engine that drives it, the way to every other rank, and its
// calls, blocking or in the background.
//
// Threads: one thread at a time issues calls; abort() and error() may come from any thread.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "collectives/algorithm.hpp"
#include "collectives/compressed.hpp"
#include "collectives/hosts.hpp"
#include "comm/algorithm_rule.hpp"
#include "comm/call_recorder.hpp"
#include "comm/call_trace.hpp"
#include "comm/cancellation.hpp"
#include "comm/control_seat.hpp"
#include "comm/descent.hpp"
#include "comm/pair_numbers.hpp"
#include "comm/unique_id.hpp"
#include "compress/held_compressors.hpp"
#include "core/call_number.hpp"
#include "core/engine.hpp"
#include "core/settings.hpp"
#include "kernels/host_compute.hpp"
#include "transport/transport_table.hpp"

namespace pith {

// Calls that were issued together. `remaining` reaches zero once all have ended.
class CallGroup {
 public:
  explicit CallGroup(int calls) : remaining_(calls) {}
  bool done() const { return remaining_.load(std::memory_order_acquire) == 0; }
  // The first error that came. Precondition: done().
  const Error& error() const { return error_; }
  void finish_one(const Error& error);
  // Of a call that was issued with them and is none of them.
  void keep(const Error& error);

 private:
  std::atomic<int> remaining_;
  std::mutex mutex_;
  Error error_;
};

class Communicator;
class Compressor;
class LateChoice;
class LocalHub;
class StartLog;
class StreamCalls;
namespace cuda {
class Device;
}

// A call in the background. The owner keeps it until its group is done.
class BackgroundCall : public Work {
 public:
  BackgroundCall(Communicator& communicator, const CollectiveArgs& args, CallGroup& group)
      : communicator_(communicator), args_(args), group_(group) {}
  FrameArena& frame_arena() const;

 private:
  friend class Communicator;
  Task<Error> run_and_report();
  void post_reaping();
  bool is_paired() const { return args_.collective == Collective::point_to_point; }

  Communicator& communicator_;
  CollectiveArgs args_;
  CallGroup& group_;
  std::uint32_t number_ = 0;
  CallRecorder::Batch recorded_;
  bool driven_ = false;  // the issuing thread drives it: the progress thread is not needed
  std::optional<Call> call_;
  Task<Error> task_;
};

class Communicator final : public std::enable_shared_from_this<Communicator>, private CommWatcher {
 public:
  // Collective over the holders of `id`. `cancellation`: may be null. `table`: the transports that
  // it and its descendants choose from; outlives them.
  static Expected<std::unique_ptr<Communicator>> init_rank(
      const Settings& settings, const UniqueId& id, int rank, int ranks,
      const std::shared_ptr<const Cancellation>& cancellation,
      TransportTable table = transport_table());
  // All ranks in this process.
  static Expected<std::vector<std::unique_ptr<Communicator>>> init_all(int ranks);
  ~Communicator();
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;

  int rank() const { return rank_; }
  int size() const { return context_.size; }
  // Which ranks run on one host, and by what number this rank is known there.
  const Hosts& hosts() const { return hosts_; }
  int place() const { return context_.rank; }
  Engine& engine() { return *engine_; }

  // Null where no algorithm is of a collective of this name. The name ends with a zero.
  const Algorithm* algorithm_of(std::string_view collective, std::size_t count, DType type) const;
  // What the choice of its algorithm depends on.
  Shape shape_of(const CollectiveArgs& args) const;
  // Runs the call to its end on this thread. Fills in what `args` leaves to the communicator.
  Error run(CollectiveArgs& args);
  // Starts it in the order of the issues. `driven`: the caller drives the engine until it is done.
  void issue(BackgroundCall& call, bool driven);
  // Starts it when the CUDA stream gets there; the stream waits for its end, the caller does not.
  // `held`: the compressors of its tensors, if it has any; let go before the stream goes on. Where
  // the communicator is revoked they get the gradient all the same, and this says why it is.
  // Waits until those enqueued before it have ended here, but for the rest of its group: `grouped`
  // says that the last one belongs to it.
  Error enqueue_on_stream(const CollectiveArgs& args, void* stream, HeldCompressors held = {},
                          bool grouped = false);
  // A sum that may turn out to be its candidate's.
  Error enqueue_on_stream(const CollectiveArgs& args, void* stream, LateChoice& choice,
                          bool grouped);
  // Takes the memory that such a sum needs if it turns out to be its candidate's; fails where there
  // is none left. Before ranks agree on it: afterwards the others count on it.
  Error make_room_on_stream(const CollectiveArgs& args, void* stream, const LateChoice& choice);
  // Before and behind the calls of a group, given their streams, all different: where there are
  // several, all wait until the group's work begins, and for all of it to end.
  Error join_streams(std::span<void* const> streams);
  // What calls on streams need is made now instead of at the first one, which may find its stream
  // waiting: kernels loaded, flags, scratch. `context`: a CUDA context; null: nothing is made. Of
  // another context's calls the first one makes it. So it does, and tells why, where this fails.
  void prepare_streams(void* context);
  // That of the calls on streams, or for which they are prepared; null: neither.
  void* stream_context() const;

  // Collective. The ranks of one color, ordered by key and then by rank; null for no_color.
  static constexpr int no_color = Split::no_color;
  // `settings`: of the new one; where they could not be read, the others are told.
  Expected<std::unique_ptr<Communicator>> split(const Expected<Settings>& settings, int color,
                                                int key);
  // Collective over the ranks that live and are not excluded, also of a revoked communicator: they
  // agree who that is, and on the last call that all of them completed.
  Expected<std::unique_ptr<Communicator>> shrink(const Expected<Settings>& settings,
                                                 std::span<const int> excluded);

  // Ranks whose process or host is gone. After an error that names one, waits a little for the
  // control plane to confirm it.
  std::vector<int> failed();
  // Set by shrink, on both communicators; 0: none.
  std::uint64_t last_completed_by_all() const { return completed_by_all_; }

  // The compressor's calls, and their numbers, are this communicator's from now on: after a shrink,
  // those that others did not complete go back to its residual. Only with a call that is no longer
  // refused. Precondition: a shared pointer holds this.
  void bind(const std::shared_ptr<Compressor>& compressor);
  // What a compressed call that begins on this thread is refused for, before its compressors hear
  // of it. Precondition: there are tensors; a stream's are checked when it is enqueued.
  Error check(std::span<const CompressedTensor> tensors) const;
  // Whether compressors are held to it: it is neither revoked nor shrunk.
  bool holds_compressors() const {
    return !is_revoked() && !shrunk_.load(std::memory_order_acquire);
  }
  // A compressed call that failed before it was issued: gradients go to the accumulators.
  void absorb(std::span<CompressedTensor> tensors);

  // Every running and later call ends with an error, here and at the other ranks.
  void abort();
  // Before an abort that frees the handle: what makes a descendant on any thread ends as well.
  void cancel_descent() { cancellation_->cancel(); }
  // This one is only a step on the way to a descendant of the other: what ends the making of the
  // other's descendants ends that of ours.
  void is_cancelled_with(const Communicator& other) { cancellation_ = other.cancellation_; }
  // What revokes this one revokes the other, too, at all ranks of that: a descendant, or what it
  // descends from.
  void takes_along(const Communicator& other) { taken_along_ = other.key_; }
  // What revoked the communicator, if anything did. Not while this thread has the engine's token,
  // unlike is_revoked().
  Error error();
  // The same, or that a rank has died, for whoever asks while no call runs here: a death alone
  // revokes nothing.
  Error async_error();
  bool is_revoked() const { return is_revoked_.load(std::memory_order_acquire); }
  // Waits until no call runs any more.
  void drain();
  // The process ends, and this rank leaves in order: no call begins any more, peers are told and
  // get what was sent, by the deadline. False where a call goes on running.
  bool leave_with_process(std::uint64_t deadline_ns);
  // What a rank that leaves waits for its peers at most.
  static constexpr std::uint64_t goodbye_ns = 1'000'000'000;
  ControlSeat& seat() { return *control_; }
  // An abort that nobody else hears of, where no call runs or is enqueued, in a moment at the
  // latest, nor may be replayed; false: it must be a real one. No call begins afterwards.
  bool leave();

 private:
  friend class BackgroundCall;
  friend class StreamCalls;

  // `members`: the ranks of the job, by rank here.
  Communicator(const Settings& settings, std::shared_ptr<ControlSeat> control, CommKey key,
               std::vector<int> members, int rank);
  // Collective, by what the members tell each other. At last it is known to the control plane.
  Error connect(Gatherer& gatherer, const Settings& settings, StartLog& log);
  Error connect_threads(Gatherer& gatherer, const Settings& settings, StartLog& log);
  // What whoever called for it gets; the others are told.
  Error give_up_start(const Error& cause);
  void join(std::shared_ptr<LocalHub> hub, RankOrder order);
  using All = Expected<std::vector<std::unique_ptr<Communicator>>>;
  static All init_threads(int ranks, const Settings& settings);
  static All init_by_meeting(int ranks, const Settings& settings);
  // A communicator of some of our members. Collective over them.
  Expected<std::unique_ptr<Communicator>> make_child(const Expected<Settings>& settings,
                                                     CommKey key, const std::vector<int>& members);
  int own_member() const { return members_[static_cast<std::size_t>(rank())]; }
  // Those of our members, by rank here; -1 for the others.
  std::vector<int> named(const std::vector<int>& members) const;
  Error leave_descent(CommKey child, const Error& error);
  Error end_descent(CommKey child, const Error& error);
  GatherResult ask(const Question& question);
  std::vector<int> cut_off(std::span<const int> excluded);
  // From then on algorithms walk the ranks in this order. Once all routes are known.
  void set_order(RankOrder order);
  // `names`: by rank, equal where ranks run on one host. After set_order().
  void set_hosts(std::span<const std::size_t> names);
  // Whether all, or any two, ranks reach each other's memory: the same on all ranks.
  void set_views(bool all, bool any);
  // Whether a host has more ranks than cores.
  void set_crowded(bool crowded) { context_.choice.crowded = crowded && !pinned_; }
  void set_devices(bool devices) { context_.choice.devices = devices && !pinned_; }
  void add_transport(std::unique_ptr<PeerTransport> transport);
  const Algorithm* forced(Collective collective) const { return forced_[index(collective)]; }
  Error read_forced(const std::string& text);
  const Algorithm& choose(const CollectiveArgs& args) const;
  // Null: there is no memory for it.
  Task<Error> start(Call& call, const CollectiveArgs& args);
  Task<Error> task_of(Call& call, const CollectiveArgs& args);
  static Error told_to_all(const Call& call, const CollectiveArgs& args, const Error& error);
  Error run_alone(const CollectiveArgs& args);
  bool is_alone(const CollectiveArgs& args) const;
  // For the flight recorder, and for the trace where there is one.
  using Recorded = CallRecorder::Batch;
  Recorded call_begins(std::uint32_t number, std::uint64_t digest, const CollectiveArgs& args);
  void call_ends(std::uint32_t number, const Recorded& recorded, bool well);
  // Where the settings want a trace; once all routes are known.
  void begin_trace();
  std::uint32_t number(const CollectiveArgs& args);
  void complete(CollectiveArgs& args) const;
  static std::uint64_t digest_of(const CollectiveArgs& args);
  std::uint32_t take_number() {
    const std::uint32_t number = next_call_.load(std::memory_order_relaxed);
    next_call_.store(next_number(number), std::memory_order_relaxed);
    return number;
  }

  Error open_streams(const CollectiveArgs& args, void* stream);
  Error open_streams_of(cuda::Device& device);
  // After how long a log line tells of a call that stands still.
  double warn_s() const;
  void enqueue(BackgroundCall& call);
  void start_queued();
  void begin(BackgroundCall& call);
  void end_without_memory(BackgroundCall& call);
  void reap(BackgroundCall& call);

  void revoke(const Error& cause);
  void revoke_for_loss(const Error& error);
  // A call that begins now would need the dead. Precondition of these three: the token is held.
  void revoke_if_any_died();
  Error revoked_now();
  Error refuses_calls();
  Error first_death();
  Error death_of(int rank);
  // Whether the control plane knows why nothing comes from the rank any more.
  bool has_ended(int rank) const;
  void look_at_dead();
  void look_soon_at_dead();
  bool is_waited_for(int rank) const;
  const Route& route_to(int rank) const {
    return routes_[static_cast<std::size_t>(order_.place_of(rank))];
  }
  void part(const Error& why, std::uint64_t deadline_ns);
  Error aborted_here() const;
  Error heard();
  Error run_here(std::uint32_t call_number, const CollectiveArgs& args);
  bool is_over(const Error& error) const;
  Error check_left_over(std::uint32_t call);
  void look_for_left_over();
  void drive_if_idle();
  bool runs() const;
  bool ends_soon(std::uint64_t until_ns);
  // Ranks are in different calls under one number; `peer` is one that is not in ours.
  void dispute(int peer, std::uint32_t call);
  void look_at_dispute(std::uint64_t now_ns);
  void settle();
  // Whether a call that fails may have left peers in the middle of its memory. With the token.
  bool peers_may_touch() const { return state_.revoked && state_.exposed; }
  bool settled(std::uint64_t now_ns) const;
  void wait_until_settled();
  void return_to_compressors(std::uint64_t completed);
  void finish(BackgroundCall& call, const Error& error);
  static void finish_now(BackgroundCall& call, const Error& error);
  void finish_settled(std::uint64_t now_ns);

  // CommWatcher, called by the control thread
  void on_revoked(const Error& error) override;
  void on_dead(const Error& error) override;
  std::optional<CallNote> find_call(std::uint32_t number) override {
    return recorder_.find(number);
  }
  Error refusal_of(std::uint32_t number) override;
  std::optional<Stall> look(std::uint64_t now_ns) override;
  void on_stalled(const Stall& stall) override;
  void look_who_is_waited_for();
  void look_at_what_lasts(const std::optional<CallNote>& call, std::uint64_t now_ns);

  static std::size_t index(Collective collective) { return static_cast<std::size_t>(collective); }

  std::unique_ptr<CallTrace> trace_;  // null: none; outlives what it observes
  std::string trace_prefix_;
  std::unique_ptr<Engine> engine_;
  HostCompute compute_;
  CommState state_;
  CallContext context_;
  Tuning tuning_;
  std::size_t chunk_ = 0;  // as set; 0: by transport
  bool pinned_ = false;    // choices depend on arguments alone: the same bits in every run
  ForcedAlgorithms forced_{};
  std::vector<Route> routes_;  // in order
  RankOrder order_;
  Hosts hosts_;
  TransportTable transport_table_ = transport_table();
  std::vector<std::unique_ptr<PeerTransport>> transports_;
  bool parted_ = false;  // they have been closed
  double heartbeat_s_ = 0;
  double timeout_s_ = 0;  // 0: none
  bool cuda_ipc_ = true;
  std::optional<bool> cuda_by_workers_;  // null: where no other process's ranks use the device
  std::vector<std::string> devices_of_others_;  // of other processes' ranks, by cuda::uuid_of
  unsigned cuda_blocks_ = 0;
  std::atomic<std::uint32_t> next_call_{1};
  PairNumbers pairs_;
  PairWindows windows_;
  std::atomic<bool> is_revoked_{false};  // for whoever does not hold the engine
  std::atomic<CommKey> taken_along_{0};  // 0: none
  std::atomic<int> active_{0};           // calls in the background and on streams
  std::atomic<bool> blocking_{false};    // a thread is inside a blocking call
  bool inside_ = false;                  // whose algorithm runs; guarded by the token
  std::vector<BackgroundCall*> queued_;
  int running_ = 0;
  std::unique_ptr<StreamCalls> streams_;  // from the first call on a stream, or prepared
  std::vector<std::unique_ptr<StreamCalls>> unused_streams_;  // prepared for other devices

  // --- with the control plane ---
  const std::shared_ptr<ControlSeat> control_;
  const CommKey key_;
  const int rank_;
  const std::vector<int> members_;              // ranks of the job, by rank here
  bool one_process_ = false;                    // all ranks are threads of this process
  std::shared_ptr<Cancellation> cancellation_;  // of descents
  CallRecorder recorder_;
  DescentRounds rounds_;
  std::uint64_t completed_by_all_ = 0;
  std::atomic<bool> shrunk_{false};
  std::vector<std::weak_ptr<Compressor>> compressors_;  // that have called

  std::mutex hearsay_mutex_;
  Error heard_;  // what revoked the communicator elsewhere
  Work heard_work_;
  std::atomic<bool> heard_posted_{false};

  // A rank that is gone. What it had sent may still come.
  struct Death {
    Error error;
    std::uint64_t heard = 0;     // from it, at the last look
    std::uint64_t since_ns = 0;  // it has been waited for in vain; 0: it is not
    bool is_late = false;        // for too long, as was seen once
  };
  std::vector<Death> deaths_;  // in the order of the news; guarded by hearsay_mutex_
  std::atomic<bool> any_died_{false};
  Work dead_work_;
  std::atomic<bool> dead_posted_{false};

  struct Dispute {
    Error error;  // for want of a better one
    std::uint64_t since_ns = 0;
  };
  std::mutex dispute_mutex_;
  Dispute dispute_;

  // A revoked call returns once no peer touches its buffers any more, or after a limit.
  std::atomic<bool> settling_{false};
  std::atomic<bool> all_settled_{false};
  std::atomic<std::uint64_t> settling_since_ns_{0};
  std::mutex unsettled_mutex_;
  std::vector<std::pair<BackgroundCall*, Error>> unsettled_;

  struct {
    bool any = false;
    std::uint32_t call = 0;
    std::uint32_t moves = 0;
    std::uint64_t since_ns = 0;
  } watched_;  // of the control thread
  struct {
    bool any = false;
    std::uint32_t call = 0;
    std::uint64_t since_ns = 0;
  } lasting_;  // the oldest call, of the control thread
  Work look_work_;
  std::atomic<bool> look_posted_{false};
  std::atomic<int> waits_for_{-1};
};

// Drives all these engines until `done()`, taking turns with their other drivers.
void drive_engines(std::span<Engine* const> engines, const std::function<bool()>& done);

}  // namespace pith
