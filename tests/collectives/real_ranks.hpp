// Ranks that are threads of this process, over a real transport.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "collectives/call.hpp"
#include "collectives/hosts.hpp"
#include "core/engine.hpp"
#include "kernels/host_compute.hpp"
#include "model/model.hpp"
#include "transport/local/local.hpp"
#include "transport/shm/shm.hpp"
#include "transport/tcp/tcp.hpp"
#include "transport/ucx/ucx.hpp"

namespace pith::test {

// shm_copies: private memory of any size is copied across processes.
// tcp_encrypted: tcp with its encryption.
// verbs: over the software network of fake_verbs.hpp, where this build has verbs.
enum class RealKind { local, shm, shm_copies, tcp, tcp_encrypted, ucx, verbs };

// What the threads share.
struct Meeting {
  explicit Meeting(int size) : ranks(size), names(static_cast<std::size_t>(size)) {}
  const int ranks;
  std::atomic<int> arrived{0};
  std::atomic<bool> failed{false};
  std::vector<std::string> names;  // by rank; each writes its own, all read after a meeting
  std::shared_ptr<LocalHub> hub;
};

class RealRank {
 public:
  RealRank(RealKind kind, int rank, Meeting& meeting);
  // In order, when every rank has come to its end.
  void leave();

  int rank() const { return context_.rank; }
  int size() const { return context_.size; }
  // The ranks' next call. Throws where it fails.
  void run(const std::function<Task<Error>(Call&)>& start);
  // From the next call on; lives as long. A name for each rank, equal on one host.
  void set_hosts(const Hosts& hosts) { context_.hosts = &hosts; }
  // Waits for all ranks, and drives the engine meanwhile.
  void meet();
  static void must(const std::string& failure, std::string_view what) {
    if (!failure.empty()) throw std::runtime_error(std::string(what) + ": " + failure);
  }

 private:
  void revoke(const Error& error);
  std::unique_ptr<PeerTransport> connect_shm(const ShmOptions& options);
  std::unique_ptr<PeerTransport> connect_tcp(bool encrypt);
  std::unique_ptr<PeerTransport> connect_ucx();
  std::unique_ptr<PeerTransport> connect_verbs();

  Meeting& meeting_;
  Engine engine_;
  HostCompute compute_;
  CommState comm_;
  std::vector<Route> routes_;
  Model model_;
  CallContext context_;
  std::unique_ptr<PeerTransport> transport_;
  std::uint32_t calls_ = 0;
  int meetings_ = 0;
};

// body(rank) on one thread each; what the first one that failed says.
std::string run_real(RealKind kind, int ranks, const std::function<void(RealRank&)>& body);

}  // namespace pith::test
