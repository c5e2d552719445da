// Which rank of how many a process is, by the variables that its launcher has set, and how the
// ranks find their bootstrap root. Reads nothing but its arguments.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "settings/settings.hpp"

namespace pith {

struct Launch {
  // How the ranks meet: rank 0 listens where all of them know, or its id goes through the
  // launcher's own exchange, which only the ranks of the job can read.
  enum class Way : std::uint8_t { address, pmi, pmix };

  std::string launcher;  // for messages
  Way way = Way::address;
  int rank = -1;
  int size = 0;
  int local_rank = 0;     // among the ranks of this host, as far as the launcher says
  bool one_host = false;  // the launcher says that all ranks are on this host
  std::string host;       // address: of rank 0, a name or a number
  std::uint16_t port = 0;
  std::string port_by;  // what gave it, for messages: "PITH_PORT=5000", "from MASTER_PORT=29500"
  std::string job;      // tells this job from another one at the same address
  int pmi_fd = -1;

  // address: the variables that say where rank 0 listens, for messages.
  std::string_view root_variable() const {
    if (launcher == "PITH_RANK") return "PITH_ROOT";
    return launcher == "torchrun" ? "MASTER_ADDR" : "SLURM_STEP_NODELIST";
  }
};

// Every variable that read_launch looks at.
std::span<const std::string_view> launch_variables();

// PITH_RANK, PITH_SIZE and PITH_ROOT first, then torchrun, Open MPI or another PMIx, MPICH, srun:
// who is started last stands first, as torchrun inside of srun. The error lists all that was looked
// for, or names two that disagree and cannot be one inside of the other; PITH_LAUNCHER chooses.
Expected<Launch> read_launch(const Variables& variables, const Settings& settings);
// The same, but nothing where the process seems to be nobody's rank: PITH_LAUNCHER is not set, and
// no variable tells a rank or a size.
Expected<std::optional<Launch>> find_launch(const Variables& variables, const Settings& settings);

// "node[003-005,9],other" -> "node003"; empty where the text is no such list.
std::string first_host(std::string_view list);

// "127.0.0.1", "::1", "localhost": no other host can reach it.
bool is_loopback(std::string_view host);

}  // namespace pith
