// A rank of two over UcxTransport, on what UCX can use on any host: sockets on lo.
#pragma once

#include <cstdlib>
#include <memory>

#include "catch.hpp"
#include "transport/ring_support.hpp"
#include "transport/two_ranks.hpp"
#include "transport/ucx/ucx.hpp"

namespace pith_test {

using pith::Expected;
using pith::Secret;
using pith::UcxOptions;
using pith::UcxTransport;

// UCX's own settings, for as long as it lives. UCX reads them when a transport is made.
class Ways {
 public:
  explicit Ways(const char* names) {
    setenv("UCX_TLS", names, 1);
    setenv("UCX_NET_DEVICES", "lo", 1);
  }
  ~Ways() {
    unsetenv("UCX_TLS");
    unsetenv("UCX_NET_DEVICES");
  }
  Ways(const Ways&) = delete;
  Ways& operator=(const Ways&) = delete;
};

inline bool absent() {
  const pith::UcxSupport support = pith::ucx_support("127.0.0.1");
  if (support.why_not) WARN("skipped: " << support.why_not.message());
  return static_cast<bool>(support.why_not);
}

inline Secret secret_of(std::byte byte) {
  Secret secret{};
  secret.fill(byte);
  return secret;
}

inline std::unique_ptr<UcxTransport> make(Rank& self, int ranks, const UcxOptions& options,
                                          std::byte secret_byte = {}) {
  Expected<std::unique_ptr<UcxTransport>> made = UcxTransport::create(
      self.scheduler, self.mailbox, self.rank(), ranks, secret_of(secret_byte), options);
  must(static_cast<bool>(made), made.error().message());
  return std::move(*made);
}

// A rank of two; `secret_byte` differs in the test of strangers.
struct UcxRank : Rank {
  UcxRank(int rank, const Names& names, const UcxOptions& options = {}, std::byte secret_byte = {},
          std::uint64_t patience_ns = 20 * second_ns)
      : Rank(rank, 2), ucx(make(*this, 2, options, secret_byte)) {
    transport = ucx.get();
    ucx->on_peer_lost = [this](int, const Error& loss) {
      ++losses;
      lost = loss;
    };
    const Expected<std::string> mine = ucx->listen();
    must(static_cast<bool>(mine), mine.error().message());
    const auto peer = static_cast<std::size_t>(1 - rank);
    std::vector<std::string> all(2);
    all[peer] = names.swap(rank, *mine);
    std::vector<std::uint8_t> use(2, 0);
    use[peer] = 1;
    connected = ucx->connect(all, use, monotonic_ns() + patience_ns);
  }
  void must_be_connected() const { must(!connected, connected.message()); }

  std::unique_ptr<UcxTransport> ucx;
  Error connected;
  Error lost;
  int losses = 0;
};

inline void leave(UcxRank& self) {
  self.meet(1 - self.rank(), 50000);
  self.ucx->close(monotonic_ns() + 10 * second_ns);
  must(self.losses == 0, self.lost.message());
}

}  // namespace pith_test
