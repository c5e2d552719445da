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
#include <string>
#include <vector>

#include "collectives/algorithm.hpp"
#include "comm/pair_numbers.hpp"
#include "comm/unique_id.hpp"
#include "core/engine.hpp"
#include "core/settings.hpp"
#include "kernels/host_compute.hpp"

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
class StreamCalls;

// A call in the background. The owner keeps it until its group is done.
class BackgroundCall : public Work {
 public:
  BackgroundCall(Communicator& communicator, const CollectiveArgs& args, CallGroup& group)
      : communicator_(communicator), args_(args), group_(group) {}
  FrameArena& frame_arena() const;

 private:
  friend class Communicator;
  Task<Error> run_and_report();
  bool is_paired() const { return args_.collective == Collective::point_to_point; }

  Communicator& communicator_;
  CollectiveArgs args_;
  CallGroup& group_;
  std::uint32_t number_ = 0;
  bool driven_ = false;  // the issuing thread drives it: the progress thread is not needed
  std::optional<Call> call_;
  Task<Error> task_;
};

class Communicator {
 public:
  // Collective over the holders of `id`.
  static Expected<std::unique_ptr<Communicator>> init_rank(const UniqueId& id, int rank, int ranks);
  // All ranks in this process.
  static Expected<std::vector<std::unique_ptr<Communicator>>> init_all(int ranks);
  ~Communicator();
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;

  int rank() const { return context_.rank; }
  int size() const { return context_.size; }
  Engine& engine() { return *engine_; }

  // Runs the call to its end on this thread.
  Error run(const CollectiveArgs& args);
  // Starts it in the order of the issues. `driven`: the caller drives the engine until it is done.
  void issue(BackgroundCall& call, bool driven);
  // Starts it when the CUDA stream gets there; the stream waits for its end, the caller does not.
  Error enqueue_on_stream(const CollectiveArgs& args, void* stream);

  // Every running and later call ends with an error, here and at the other ranks.
  void abort();
  // What revoked the communicator, if anything did.
  Error error();
  // Waits until no call runs any more.
  void drain();

 private:
  friend class BackgroundCall;
  friend class StreamCalls;
  struct Notices;

  Communicator(int rank, int ranks, const Settings& settings);
  Error connect(const UniqueId& id, const Settings& settings);
  // Whether all, or any two, ranks reach each other's memory: the same on all ranks.
  void set_views(bool all, bool any);
  void add_transport(std::unique_ptr<Transport> transport);
  const Algorithm* forced(Collective collective) const { return forced_[index(collective)]; }
  Error read_forced(const std::string& text);
  const Algorithm& choose(const CollectiveArgs& args) const;
  Task<Error> start(Call& call, const CollectiveArgs& args) const;
  Error run_alone(const CollectiveArgs& args);
  bool is_alone(const CollectiveArgs& args) const;
  std::uint32_t number(const CollectiveArgs& args);
  CollectiveArgs complete(CollectiveArgs args) const;
  static std::uint64_t digest_of(const CollectiveArgs& args);
  // The upper half of the numbers belongs to captured calls.
  std::uint32_t take_number() {
    return next_call_.fetch_add(1, std::memory_order_relaxed) & 0x7fffffffu;
  }

  void enqueue(BackgroundCall& call);
  void start_queued();
  void begin(BackgroundCall& call);
  void reap(BackgroundCall& call);

  void revoke(const Error& error);
  void tell_peers(const Error& error);
  void heed_notice(int peer, const Header& header, const std::byte* text);

  static std::size_t index(Collective collective) { return static_cast<std::size_t>(collective); }

  std::unique_ptr<Engine> engine_;
  HostCompute compute_;
  CommState state_;
  CallContext context_;
  Tuning tuning_;
  std::size_t chunk_ = 0;  // as set; 0: by transport
  bool all_views_ = false;
  std::array<const Algorithm*, collective_count> forced_{};
  std::vector<Route> routes_;
  std::vector<std::unique_ptr<Transport>> transports_;
  std::vector<std::function<void()>> closers_;
  std::unique_ptr<Notices> notices_;
  std::atomic<std::uint32_t> next_call_{1};
  PairNumbers pairs_;
  std::atomic<bool> is_revoked_{false};  // for whoever does not hold the engine
  std::atomic<int> active_{0};           // calls on any thread, for drain()
  std::vector<BackgroundCall*> queued_;
  int running_ = 0;
  std::unique_ptr<StreamCalls> streams_;  // from the first call on a stream
};

// Drives all these engines until `done()`, taking turns with their other drivers.
void drive_engines(std::span<Engine* const> engines, const std::function<bool()>& done);

}  // namespace pith
