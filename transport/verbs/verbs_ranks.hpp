// The implementation of VerbsTransport: the seam in verbs.cpp, start and end in verbs_mesh.cpp.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "transport/socket.hpp"
#include "transport/verbs/verbs.hpp"
#include "transport/verbs/verbs_pair.hpp"

namespace pith {

class VerbsRanks final : public VerbsTransport {
 public:
  using Rails = std::vector<std::unique_ptr<VerbsRail>>;
  VerbsRanks(const VerbsLibrary& library, Rails rails, Scheduler& scheduler, Mailbox& mailbox,
             int rank, int ranks, const VerbsOptions& options);
  ~VerbsRanks() override;

  Expected<std::string> listen() override;
  Error attach(std::span<const std::string> addresses, std::vector<bool>& attached,
               const Patience& patience) override;
  Error connect(std::span<const std::string> addresses, std::span<const std::uint8_t> use,
                const Patience& patience) override;
  void close(std::uint64_t deadline_ns) override;
  void look_at_links(std::uint64_t now_ns) override;

  std::string_view name() const override { return "verbs"; }
  bool start(Send& send) override;
  std::size_t slot_bytes() const override { return verbs_payload_max; }
  std::size_t direct_bytes(Compute& compute) const override;
  bool reaches(Scratch& scratch) override;
  Front take_front(int peer, const Header& header, const FrontReader& reader) override;
  MemoryHandle expose(int, Bytes) override { return {}; }
  std::byte* map(int, MemoryHandle) override { return nullptr; }
  bool progress() override;
  bool busy() const override;
  int descriptor() const override { return epoll_.get(); }
  bool arm() override;
  void disarm() override {}
  void quiesce(const CommState& comm, const Error& error) override;
  std::uint64_t heard_from(int peer) const override {
    return by_rank_[static_cast<std::size_t>(peer)]->heard();
  }
  void for_each_sending(const std::function<void(const Send&)>& see) const override;

 private:
  bool gather();
  bool act(std::size_t most);
  void lose_all(std::string_view how);
  bool report_lost();
  void heed_events();
  Error make_pairs();
  void nap(std::uint64_t deadline_ns);

  const Rails rails_;
  Mailbox& mailbox_;
  const int rank_;
  const int ranks_;
  const std::uint32_t window_;
  VerbsSlots slots_;
  VerbsMemory memory_;
  const VerbsShared shared_;
  const bool direct_;
  VerbsCompletions completions_;
  Descriptor epoll_;
  std::vector<std::unique_ptr<VerbsPair>> by_rank_;
  std::vector<VerbsPair*> pairs_;  // connected now or before
  bool armed_ = false;
};

}  // namespace pith
