// Which rank of how many this process is, by its launcher's variables, and how ranks find their
// bootstrap root. Depends on its arguments only.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "settings/settings.hpp"

namespace pith {

struct Launch {
  // How ranks find the root: rank 0 listens at an address that all know, or its id goes through the
  // launcher's key-value exchange, which only ranks of the job can read.
  enum class Way : std::uint8_t { address, pmi, pmix };

  std::string launcher;  // for messages
  Way way = Way::address;
  int rank = -1;
  int size = 0;
  int local_rank = 0;     // among the ranks of this host; 0 where the launcher does not say
  bool one_host = false;  // the launcher says that all ranks are on this host
  std::string host;       // address: rank 0's host name or number
  std::uint16_t port = 0;
  std::string port_by;  // where the port comes from, for messages: "PITH_PORT=5000", "from
                        // MASTER_PORT=29500"
  std::string job;      // distinguishes jobs that use the same address
  int pmi_fd = -1;

  // address: the variable that names rank 0's host, for messages.
  std::string_view root_variable() const {
    if (launcher == "PITH_RANK") return "PITH_ROOT";
    return launcher == "torchrun" ? "MASTER_ADDR" : "SLURM_STEP_NODELIST";
  }
};

// Every variable that read_launch reads.
std::span<const std::string_view> launch_variables();

// Looks at PITH_RANK, PITH_SIZE and PITH_ROOT first, then torchrun, Open MPI or another PMIx,
// MPICH, srun: inner launchers before outer ones, as torchrun inside of srun. The error lists all
// that was looked for, or two launchers that disagree and cannot be nested; PITH_LAUNCHER chooses
// one.
Expected<Launch> read_launch(const Variables& variables, const Settings& settings);
// The same, but empty where the process is not a rank: PITH_LAUNCHER is not set, and no variable
// gives a rank or a size.
Expected<std::optional<Launch>> find_launch(const Variables& variables, const Settings& settings);

// "node[003-005,9],other" -> "node003"; empty where the text is malformed.
std::string first_host(std::string_view list);

// "127.0.0.1", "::1", "localhost": no other host can reach it.
bool is_loopback(std::string_view host);

}  // namespace pith
