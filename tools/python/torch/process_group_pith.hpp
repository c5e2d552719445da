// The process group "pith" of torch.distributed.
#pragma once

#include <torch/csrc/distributed/c10d/Store.hpp>

#include "collectives.hpp"
#include "messages.hpp"

namespace pith_torch {

struct PithOptions : c10d::Backend::Options {
  // setting: PITH_TIMEOUT in seconds, if it is set; it goes before the group's timeout.
  PithOptions(std::chrono::milliseconds given, std::optional<double> setting)
      : c10d::Backend::Options("pith", given), setting_s(setting) {}
  // In whole seconds; none: the setting's.
  std::optional<int> calls_timeout() const {
    if (setting_s) return std::nullopt;
    return static_cast<int>(std::chrono::ceil<std::chrono::seconds>(timeout).count());
  }
  double messages_timeout_s() const {
    return setting_s ? *setting_s : std::chrono::duration<double>(timeout).count();
  }

  std::optional<double> setting_s;
};

class ProcessGroupPith final : public Collectives {
 public:
  // Collective over its ranks, which meet through the store.
  ProcessGroupPith(const c10::intrusive_ptr<c10d::Store>& store, int rank, int size,
                   c10::intrusive_ptr<PithOptions> options);
  ProcessGroupPith(std::unique_ptr<Communicator> comm, c10::intrusive_ptr<c10d::Store> store,
                   c10::intrusive_ptr<PithOptions> options);
  ~ProcessGroupPith() override;

  const std::string getBackendName() const override { return "pith"; }
  c10::intrusive_ptr<Backend::Options> getBackendOptions() override { return options_; }
  void setTimeout(std::chrono::milliseconds timeout) override { options_->timeout = timeout; }

  WorkReturned send(TensorList& tensors, int to, int tag) override;
  WorkReturned recv(TensorList& tensors, int from, int tag) override;
  WorkReturned recvAnysource(TensorList& tensors, int tag) override;
  WorkReturned barrier(const c10d::BarrierOptions& opts) override;
  void monitoredBarrier(const c10d::BarrierOptions& opts, bool wait_all_ranks) override;

  bool supportsSplitting() const override { return true; }
  c10::intrusive_ptr<Backend> split(const c10::intrusive_ptr<c10d::Store>& store,
                                    const std::vector<int>& ranks,
                                    const c10::intrusive_ptr<Backend::Options>& opts) override;
  bool supportsShrinking() const override { return true; }
  c10::intrusive_ptr<Backend> shrink(const std::vector<int64_t>& excluded, int flags,
                                     const c10::intrusive_ptr<Backend::Options>& opts) override;
  void abort() override;
  void shutdown() override;
  c10d::ErrorType getError() override;
  // The ranks whose process or host is gone.
  std::vector<int> failed() const;

 private:
  WorkReturned receive(TensorList& tensors, int from, int tag, CallFacts facts);
  void check_peer(int peer, const char* what) const;
  c10::intrusive_ptr<Backend> with(std::unique_ptr<Communicator> comm,
                                   c10::intrusive_ptr<c10d::Store> store,
                                   const c10::intrusive_ptr<Backend::Options>& opts) const;

  const c10::intrusive_ptr<c10d::Store> store_;
  const c10::intrusive_ptr<PithOptions> options_;
  std::shared_ptr<Messages> messages_;
  std::uint64_t monitored_ = 0;  // number of monitored barriers
};

}  // namespace pith_torch
