// Recording decorators: they write what passes into a Recorder, and forward it.
//
//   Trace trace;
//   trace.add(comm, recorder);                       // whose operations go to which recorder
//   scheduler.observer = mailbox.observer = &trace;  // receives, and the ends of all operations
//   TracedTransport sends(transport, trace);         // given to calls instead of `transport`
//   TracedCompute kernels(compute, recorder);        // likewise
//
// What is not installed costs only the test of two null pointers.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "core/compute.hpp"
#include "core/operation.hpp"
#include "core/record.hpp"
#include "transport/transport.hpp"

namespace pith {

// Records the messages of one scheduler's communicators. Must outlive what points to it.
class Trace final : public OperationObserver {
 public:
  // Only operations of communicators that were added are recorded.
  void add(const CommState& comm, Recorder& recorder) { recorders_[&comm] = &recorder; }

  void begins(const Send& send) override;
  void begins(const Receive& receive) override;
  void ends(const Operation& operation) override;

 private:
  struct Open {
    Recorder* recorder = nullptr;
    std::uint64_t id = 0;
    bool receives = false;
  };

  std::unordered_map<const CommState*, Recorder*> recorders_;
  std::unordered_map<const Operation*, Open> open_;
};

// The engine drives the inner transport: only calls need to see this one.
class TracedTransport final : public Transport {
 public:
  TracedTransport(Transport& inner, Trace& trace) : inner_(inner), trace_(trace) {}

  std::string_view name() const override { return inner_.name(); }
  bool start(Send& send) override {
    trace_.begins(send);
    const bool complete = inner_.start(send);
    if (complete) trace_.ends(send);
    return complete;
  }
  std::size_t slot_bytes() const override { return inner_.slot_bytes(); }
  std::size_t direct_bytes(Compute& compute) const override { return inner_.direct_bytes(compute); }
  bool reaches(Scratch& scratch) override { return inner_.reaches(scratch); }
  MemoryHandle expose(int peer, Bytes memory) override { return inner_.expose(peer, memory); }
  MemoryHandle expose_for_copies(int peer, Bytes memory) override {
    return inner_.expose_for_copies(peer, memory);
  }
  bool prefers_messages(int peer) override { return inner_.prefers_messages(peer); }
  std::byte* map(int peer, MemoryHandle handle) override { return inner_.map(peer, handle); }
  Error copy_from(int peer, std::uint64_t where, Bytes into) override {
    return inner_.copy_from(peer, where, into);
  }
  Error copy_to(int peer, std::uint64_t where, Bytes from) override {
    return inner_.copy_to(peer, where, from);
  }
  void quiesce(const CommState& comm, const Error& error) override { inner_.quiesce(comm, error); }
  void expect(int peer) override { inner_.expect(peer); }
  std::uint64_t heard_from(int peer) const override { return inner_.heard_from(peer); }
  void for_each_sending(const std::function<void(const Send&)>& see) const override {
    inner_.for_each_sending(see);
  }
  bool progress() override { return inner_.progress(); }
  bool busy() const override { return inner_.busy(); }
  int descriptor() const override { return inner_.descriptor(); }
  bool arm() override { return inner_.arm(); }
  void disarm() override { inner_.disarm(); }

 private:
  Transport& inner_;
  Trace& trace_;
};

// Kernels of a queue run one after the other, so each begins when the one before it has ended.
class TracedCompute final : public Compute {
 public:
  TracedCompute(Compute& inner, Recorder& recorder) : inner_(inner), recorder_(recorder) {
    adopt_kernels(inner);
  }

  MemoryKind kind() const override { return inner_.kind(); }
  bool reached(Fence fence) const override { return inner_.reached(fence); }
  void notify(FenceWait& wait) override { inner_.notify(wait); }
  bool progress() override { return inner_.progress(); }
  std::byte* take_scratch(std::size_t bytes) override;
  void give_scratch(std::byte* scratch, std::size_t bytes) override {
    inner_.give_scratch(scratch, bytes);
  }
  std::uint64_t network_memory() const override { return inner_.network_memory(); }
  MemoryExporter* exporter() override { return inner_.exporter(); }
  void see_network_writes() override { inner_.see_network_writes(); }
  std::shared_ptr<void> withhold_scratch(std::byte* scratch, std::size_t bytes) override {
    return inner_.withhold_scratch(scratch, bytes);
  }

 protected:
  Fence submit(Implementation implementation, const void* args, std::size_t args_bytes,
               std::size_t work_bytes, Fence after) override;

 private:
  // Waits for the end of a kernel; in the inner queue's list until then.
  struct Pending : FenceWait {
    TracedCompute* compute = nullptr;
    std::uint64_t id = 0;
  };
  struct Known {
    std::uint64_t ticket = 0;
    std::uint64_t id = 0;
  };

  std::uint64_t kernel_behind(Fence fence) const;
  void watch(Fence fence, std::uint64_t id);
  void kernel_ended(std::uint64_t id);

  Compute& inner_;
  Recorder& recorder_;
  std::uint64_t last_end_ns_ = 0;
  std::array<Known, 64> fences_{};  // the newest ones
  std::size_t fence_count_ = 0;
  std::vector<std::unique_ptr<Pending>> all_pending_;
  std::vector<Pending*> spare_pending_;
};

}  // namespace pith
