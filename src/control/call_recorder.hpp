// The flight recorder: the last calls of one rank on one communicator, and its last messages
// between pairs: what, when, whether they ended, and how far unfinished ones have got.
//
// Written by the thread that drives the engine, read by any thread: plain atomic words, a few
// stores a call and no clock. Time stamps are the time that tell_time was last given. Progress is
// not counted: how far a stalled call has got follows from the messages that it waits to receive or
// to send, which are asked for only then.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <tuple>
#include <vector>

#include "collectives/call_args.hpp"
#include "compress/spec.hpp"
#include "control/call_note.hpp"
#include "control/completed_calls.hpp"
#include "core/operation.hpp"

namespace pith {

// A message that a call waits to receive, as the mailbox knows it, or to send, as the transports
// know it.
struct Awaited {
  int peer = -1;
  Tag tag;
  bool sends = false;
};

class CallRecorder {
 public:
  void begin(std::uint32_t number, std::uint64_t digest, const CollectiveArgs& args);
  void begin(std::uint32_t number, std::uint64_t digest, std::span<const CompressedTensor> tensors);
  void end(std::uint32_t number, bool well);

  // Messages between pairs are not calls. Of more than `kept` only the last ones are recorded.
  struct Batch {
    std::uint64_t first = 0;
    std::uint64_t count = 0;
  };
  Batch begin(std::span<const Message> messages);
  void end(const Batch& batch, bool well);

  // Call it a few times a second; new entries are stamped with it.
  void tell_time(std::uint64_t now_ns) {
    now_ms_.store(static_cast<std::uint32_t>(now_ns / 1'000'000), std::memory_order_relaxed);
  }

  // For stalled calls: the messages they wait for, at most most_awaited of them.
  static constexpr std::size_t most_awaited = 8;
  void tell_awaited(std::span<const Awaited> awaited);
  // Collects what is awaited now.
  class AwaitedList {
   public:
    explicit AwaitedList(const CallRecorder& recorder);
    void add(const Awaited& one);
    // The peer that the oldest unfinished call waits for; without such a call, that of the oldest
    // group of messages, in its order; -1: none. Later calls do not count: their peers may wait for
    // this rank.
    int waits_for() const { return waits_for_; }
    // The first ones added, and always that of waits_for().
    std::span<const Awaited> some() const { return {some_.data(), count_}; }

   private:
    bool is_nearer(const Awaited& one);

    const std::uint32_t call_;       // the oldest unfinished one; 0: none
    std::vector<Message> messages_;  // of the oldest group, those before that of waits_for()
    std::array<Awaited, most_awaited> some_;
    std::size_t count_ = 0;
    int waits_for_ = -1;
  };

  std::optional<CallNote> find(std::uint32_t number) const;
  // Neither this call nor a later one has begun. False for captured calls, which may be replayed.
  bool is_ahead(std::uint32_t number) const;
  // The oldest call that has not ended. Without one, the oldest group of messages: its first
  // message that is known to be awaited, else its first one.
  std::optional<CallNote> oldest_unfinished() const;
  // All calls up to this one, counted from 1, have ended well; 0: none.
  std::uint64_t last_completed() const { return completed_.count(); }
  static constexpr std::size_t kept = 64;
  // For the log, a line each: the last calls, then the last messages; all running ones and, of each
  // kind, at most `most_ended` that have ended. `head_bytes`, `chunk_bytes`: how messages of pairs
  // are cut.
  std::vector<std::string> lines(std::size_t head_bytes, std::size_t chunk_bytes,
                                 std::size_t most_ended = kept) const;

 private:
  enum State : std::uint32_t { running, ended_well, failed };
  struct alignas(64) Entry {
    std::atomic<std::uint32_t> number{0};  // 0 while the other fields are being written
    std::atomic<std::uint32_t> state{running};
    std::atomic<std::uint64_t> digest{0};
    std::atomic<std::uint64_t> count{0};
    std::atomic<std::uint32_t> what{0};  // collective, type, operation
    std::atomic<int> root{0};
    std::atomic<std::uint32_t> begun_ms{0};
    std::atomic<std::uint32_t> ended_ms{0};
    std::atomic<std::uint32_t> tensors{0};  // 0: a dense call, which uses only `spec` below, if any
    std::atomic<std::uint64_t> step{0};
    std::atomic<std::uint64_t> scale{0};     // bits of a double
    std::atomic<std::uint64_t> matrices{0};  // their hash; 0: none are known
    std::atomic<std::uint64_t> blocks{0};    // the hash of uneven ones
    std::array<std::atomic<std::uint64_t>, std::tuple_size_v<Spec::Packed>> spec{};
  };
  struct MessageEntry {
    std::atomic<std::uint64_t> serial{0};  // counts from 1; 0 while the other fields are being
                                           // written
    std::atomic<std::uint32_t> state{running};
    std::atomic<std::uint64_t> batch{0};   // the first serial of its group
    std::atomic<std::uint32_t> number{0};  // of the pair and direction
    std::atomic<std::uint64_t> count{0};
    std::atomic<int> peer{-1};
    std::atomic<DType> type{DType::u8};
    std::atomic<bool> sends{false};
    std::atomic<std::uint32_t> begun_ms{0};
    std::atomic<std::uint32_t> ended_ms{0};
  };
  struct Times {
    State state;
    std::uint32_t begun_ms;
    std::uint32_t ended_ms;
  };
  struct Read {
    CallNote note;
    std::string line;  // for the log: the note's text with the whole spec
    Times times;
  };
  struct ReadMessage {
    std::uint64_t serial;
    std::uint64_t batch;
    Message message;
    Times times;
  };
  struct AwaitedNow {
    std::array<Awaited, most_awaited> some;
    std::size_t count = 0;
    bool known = false;
  };
  AwaitedNow awaited_now() const;
  static bool is_of(const Awaited& one, const Message& message);
  std::uint32_t oldest_running() const;
  std::vector<Message> oldest_messages() const;
  static std::optional<Read> read(const Entry& entry);
  static std::optional<ReadMessage> read(const MessageEntry& entry);
  std::vector<ReadMessage> messages() const;
  std::string when(const Times& times) const;
  static std::string steps(const Read& call, const AwaitedNow& awaited, bool sends);
  static std::string how_far(const Read& call, const AwaitedNow& awaited);
  static std::string how_far(const Message& message, const AwaitedNow& awaited,
                             std::size_t head_bytes, std::size_t chunk_bytes);
  template <class Entries>
  static void drop_ended(Entries& entries, std::size_t most);
  void write(std::uint64_t serial, std::uint64_t batch, const Message& message);
  static void add_blocks(const Entry& entry, const CollectiveArgs& args,
                         std::vector<CallFact>& facts);
  static void read_compressed(const Entry& entry, const CollectiveArgs& args, Read& read);
  static void read_coded(const Entry& entry, CollectiveArgs args, Read& read);
  Entry& entry(std::uint32_t number) { return entries_[number % kept]; }
  // Begins a call's entry: readers skip it until its number is stored.
  Entry& open_entry(std::uint32_t number, std::uint64_t digest);

  std::array<Entry, kept> entries_;
  std::array<MessageEntry, kept> messages_;
  CompletedCalls completed_;
  std::atomic<std::uint32_t> newest_{0};  // the newest call that has begun, captured ones excluded
  std::uint64_t messages_begun_ = 0;
  std::atomic<std::uint64_t> messages_running_{0};
  std::atomic<std::uint32_t> now_ms_{0};
  mutable std::mutex awaited_mutex_;
  AwaitedNow awaited_;
};

// "allreduce of 10 float, sum" or "broadcast of 10 float from root 3". With uneven blocks
// "allgatherv of 10 float", in all, or "alltoallv of float".
std::string describe(const CollectiveArgs& args);
// "recv of 10 float from rank 2" or "send of 10 float to rank 2".
std::string describe(const Message& message);

}  // namespace pith
