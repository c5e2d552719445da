#include "startup/launch.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <optional>
#include <vector>

namespace pith {

namespace {

constexpr std::array<std::string_view, 31> names = {
    "RANK",
    "WORLD_SIZE",
    "LOCAL_RANK",
    "LOCAL_WORLD_SIZE",
    "MASTER_ADDR",
    "MASTER_PORT",
    "TORCHELASTIC_RUN_ID",
    "TORCHELASTIC_RESTART_COUNT",
    "OMPI_COMM_WORLD_RANK",
    "OMPI_COMM_WORLD_SIZE",
    "OMPI_COMM_WORLD_LOCAL_RANK",
    "OMPI_COMM_WORLD_LOCAL_SIZE",
    "PMIX_RANK",
    "PMIX_NAMESPACE",
    "PMI_RANK",
    "PMI_SIZE",
    "PMI_FD",
    "MPI_LOCALRANKID",
    "MPI_LOCALNRANKS",
    "SLURM_PROCID",
    "SLURM_LOCALID",
    "SLURM_NTASKS",
    "SLURM_STEP_NUM_TASKS",
    "SLURM_STEP_NUM_NODES",
    "SLURM_NNODES",
    "SLURM_STEP_NODELIST",
    "SLURM_NODELIST",
    "SLURM_JOB_NODELIST",
    "SLURM_JOB_ID",
    "SLURM_STEP_ID",
    "SLURM_STEPID",
};

// The variables by which a launcher is recognised; all must be set. The first two give rank and
// size, or lead to them.
struct Mark {
  std::string_view launcher;
  std::string_view setting;               // its name in PITH_LAUNCHER
  std::array<std::string_view, 4> names;  // padded with empty ones
};

constexpr std::array<Mark, 5> marks = {{
    {"torchrun", "torchrun", {"RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"}},
    {"Open MPI's mpirun",
     "openmpi",
     {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "PMIX_NAMESPACE"}},
    {"MPICH's mpirun", "mpich", {"PMI_RANK", "PMI_SIZE", "PMI_FD"}},
    {"srun --mpi=pmix", "srun", {"PMIX_RANK", "SLURM_NTASKS", "PMIX_NAMESPACE"}},
    {"srun", "srun", {"SLURM_PROCID", "SLURM_NTASKS", "SLURM_STEP_ID"}},
}};

// Below the usual range of ephemeral ports, so that no outgoing connection, nor a rank that
// connects before rank 0 listens, takes the port.
constexpr unsigned port_base = 10'000;
constexpr unsigned port_span = 20'000;

std::uint16_t port_from(unsigned long long number) {
  return static_cast<std::uint16_t>(port_base + number % port_span);
}

// Reads variables and keeps the first error.
class Reader {
 public:
  explicit Reader(const Variables& variables) : variables_(variables) {}

  bool has(std::string_view name) const { return variables_.contains(name); }
  std::string text(std::string_view name) const {
    const auto found = variables_.find(name);
    return found == variables_.end() ? "" : found->second;
  }
  long long number(std::string_view name, long long least, long long most) {
    const std::string given = text(name);
    long long value = 0;
    const auto [end, status] = std::from_chars(given.data(), given.data() + given.size(), value);
    if (status == std::errc() && end == given.data() + given.size() && value >= least &&
        value <= most) {
      return value;
    }
    if (!wrong) {
      wrong = Error(Code::invalid_argument,
                    fmt::format("{} is \"{}\", expected a whole number from {} to {}", name, given,
                                least, most));
    }
    return least;
  }
  // For a variable that only some versions set.
  long long number_or(std::string_view name, long long otherwise) {
    constexpr long long most = 1LL << 40;
    return has(name) ? number(name, 0, most) : otherwise;
  }
  std::string first_of(std::initializer_list<std::string_view> candidates) const {
    for (const std::string_view name : candidates) {
      if (has(name)) return text(name);
    }
    return {};
  }

  Error wrong;

 private:
  const Variables& variables_;
};

constexpr long long most_ranks = 1 << 20;

void read_place(Reader& read, Launch& launch, std::string_view rank, std::string_view size,
                std::string_view local_rank, std::string_view local_size) {
  launch.size = static_cast<int>(read.number(size, 1, most_ranks));
  if (!read.wrong) launch.rank = static_cast<int>(read.number(rank, 0, launch.size - 1));
  launch.local_rank = static_cast<int>(read.number_or(local_rank, 0));
  launch.one_host = launch.size == 1 || read.number_or(local_size, 0) == launch.size;
}

// MASTER_PORT itself is taken by torchrun's store.
Launch from_torchrun(Reader& read) {
  Launch launch;
  read_place(read, launch, "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE");
  launch.host = read.text("MASTER_ADDR");
  launch.port =
      port_from(static_cast<unsigned long long>(read.number("MASTER_PORT", 1, 65535)) + 1000);
  launch.port_by = fmt::format("from MASTER_PORT={}", read.text("MASTER_PORT"));
  launch.job =
      fmt::format("torchrun {} {} {}", read.text("MASTER_PORT"), read.text("TORCHELASTIC_RUN_ID"),
                  read.text("TORCHELASTIC_RESTART_COUNT"));
  return launch;
}

Launch from_open_mpi(Reader& read) {
  Launch launch;
  launch.way = Launch::Way::pmix;
  read_place(read, launch, "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE",
             "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE");
  return launch;
}

Launch from_mpich(Reader& read) {
  Launch launch;
  launch.way = Launch::Way::pmi;
  read_place(read, launch, "PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS");
  launch.pmi_fd = static_cast<int>(read.number("PMI_FD", 0, 1 << 20));
  return launch;
}

// Prefers the step's values to the job's.
Launch from_srun(Reader& read, std::string_view rank) {
  Launch launch;
  const std::string_view size =
      read.has("SLURM_STEP_NUM_TASKS") ? "SLURM_STEP_NUM_TASKS" : "SLURM_NTASKS";
  const std::string_view nodes =
      read.has("SLURM_STEP_NUM_NODES") ? "SLURM_STEP_NUM_NODES" : "SLURM_NNODES";
  read_place(read, launch, rank, size, "SLURM_LOCALID", "");
  launch.one_host = launch.size == 1 || read.number_or(nodes, 0) == 1;
  return launch;
}

Launch from_srun_pmix(Reader& read) {
  Launch launch = from_srun(read, "PMIX_RANK");
  launch.way = Launch::Way::pmix;
  return launch;
}

Launch from_srun_variables(Reader& read) {
  Launch launch = from_srun(read, "SLURM_PROCID");
  const auto job = static_cast<unsigned long long>(read.number_or("SLURM_JOB_ID", 0));
  const std::string_view step_id = read.has("SLURM_STEP_ID") ? "SLURM_STEP_ID" : "SLURM_STEPID";
  const auto step = static_cast<unsigned long long>(read.number_or(step_id, 0));
  launch.port = port_from(job * 31 + step);
  launch.port_by = fmt::format("from SLURM_JOB_ID={} and {}={}", job, step_id, step);
  launch.job = fmt::format("srun {}.{}", job, step);
  const std::string list =
      read.first_of({"SLURM_STEP_NODELIST", "SLURM_NODELIST", "SLURM_JOB_NODELIST"});
  launch.host = launch.one_host ? "127.0.0.1" : first_host(list);
  if (launch.host.empty() && !read.wrong) {
    read.wrong = Error(Code::invalid_argument,
                       fmt::format("SLURM_STEP_NODELIST (or SLURM_NODELIST) is \"{}\", expected "
                                   "hosts as node[1-4],other",
                                   list));
  }
  return launch;
}

using Read = Launch (*)(Reader&);
constexpr std::array<Read, marks.size()> readers = {from_torchrun, from_open_mpi, from_mpich,
                                                    from_srun_pmix, from_srun_variables};

bool is_step(const Reader& read) { return read.has("SLURM_STEP_ID") || read.has("SLURM_STEPID"); }

// Slurm steps that are not tasks of srun: the shell of a batch job or of salloc. Their variables
// describe the allocation.
bool is_step_of_shell(const Reader& read) {
  constexpr std::uint64_t first_special = 0xfffffff0;
  const std::string id = read.first_of({"SLURM_STEP_ID", "SLURM_STEPID"});
  std::uint64_t number = 0;
  std::from_chars(id.data(), id.data() + id.size(), number);
  return number >= first_special;
}

bool carries(const Reader& read, const Mark& mark) {
  if (mark.setting == "srun" && is_step_of_shell(read)) return false;
  return std::all_of(mark.names.begin(), mark.names.end(), [&](std::string_view name) {
    return name.empty() || read.has(name) || (name == "SLURM_STEP_ID" && is_step(read));
  });
}

// "torchrun (RANK, WORLD_SIZE ...)"; names the missing variables where only some are set.
std::string describe(const Reader& read, const Mark& mark) {
  std::string all;
  std::string lacking;
  bool some = false;
  for (const std::string_view name : mark.names) {
    if (name.empty()) continue;
    all += fmt::format("{}{}", all.empty() ? "" : ", ", name);
    some = some || read.has(name);
    if (!read.has(name)) lacking += fmt::format("{}{}", lacking.empty() ? "" : ", ", name);
  }
  return fmt::format("{} ({}{})", mark.launcher, all, some ? ": not set " + lacking : "");
}

// `only`: PITH_LAUNCHER, may be empty.
Error nothing_found(const Reader& read, std::string_view only) {
  std::string looked = only.empty() ? "by hand (PITH_RANK, PITH_SIZE, PITH_ROOT)" : "";
  for (const Mark& mark : marks) {
    if (!only.empty() && mark.setting != only) continue;
    looked += (looked.empty() ? "" : "; ") + describe(read, mark);
  }
  const std::string why = only.empty() ? "" : fmt::format(" (PITH_LAUNCHER is \"{}\")", only);
  return {Code::invalid_usage,
          fmt::format("no launcher has said which rank this is{}; looked for: {}", why, looked)};
}

// True when a launcher has set a rank or a size without all its other variables. Slurm's count only
// inside a task: its shells and all that they start have them too.
bool has_trace(const Reader& read) {
  const bool task = is_step(read) && !is_step_of_shell(read);
  return std::any_of(marks.begin(), marks.end(), [&](const Mark& mark) {
    return std::any_of(mark.names.begin(), mark.names.begin() + 2, [&](std::string_view name) {
      return read.has(name) && (task || !name.starts_with("SLURM_"));
    });
  });
}

// A launcher started by another one inherits its variables and numbers ranks anew: torchrun's
// workers (which set TORCHELASTIC_RUN_ID), and an mpirun that starts its daemons by srun.
bool may_be_inherited(const Reader& read, const Mark& inner, const Mark& outer) {
  if (inner.setting == "torchrun") return read.has("TORCHELASTIC_RUN_ID");
  return outer.setting == "srun";
}

std::string values_of(const Reader& read, const Mark& mark, const Launch& launch) {
  return fmt::format("{} says rank {} of {} ({}={}, {}={})", mark.launcher, launch.rank,
                     launch.size, mark.names[0], read.text(mark.names[0]), mark.names[1],
                     read.text(mark.names[1]));
}

struct Told {
  const Mark& mark;
  const Launch& launch;
};
// Left-over variables of another launcher must not change which job this is. A Slurm step of one
// task proves nothing: shells run in one.
Error conflict_of(const Reader& read, const Told& first, const Told& other) {
  const bool same =
      first.launch.rank == other.launch.rank && first.launch.size == other.launch.size;
  const bool shell = other.mark.setting == "srun" && other.launch.size == 1;
  if (same || shell || may_be_inherited(read, first.mark, other.mark)) return {};
  return {Code::invalid_usage,
          fmt::format(
              "two launchers disagree on which rank this is: {}, {}; expected the variables "
              "of one to be unset, or PITH_LAUNCHER={} or PITH_LAUNCHER={}",
              values_of(read, first.mark, first.launch), values_of(read, other.mark, other.launch),
              first.mark.setting, other.mark.setting)};
}

Expected<Launch> by_hand(const Settings& settings) {
  std::string lacking;
  if (settings.rank < 0) lacking += " PITH_RANK";
  if (settings.size == 0) lacking += " PITH_SIZE";
  if (settings.root.empty()) lacking += " PITH_ROOT";
  if (!lacking.empty()) {
    return Error(
        Code::invalid_usage,
        fmt::format("PITH_RANK, PITH_SIZE and PITH_ROOT go together; not set:{}", lacking));
  }
  if (settings.rank >= settings.size) {
    return Error(Code::invalid_argument,
                 fmt::format("PITH_RANK is {}, expected 0 to {} (PITH_SIZE - 1)", settings.rank,
                             settings.size - 1));
  }
  Launch launch;
  launch.launcher = "PITH_RANK";
  launch.rank = settings.rank;
  launch.size = settings.size;
  const std::size_t colon = settings.root.rfind(':');
  launch.host = settings.root.substr(0, colon);
  if (launch.host.starts_with('[')) launch.host = launch.host.substr(1, launch.host.size() - 2);
  const char* const end = settings.root.data() + settings.root.size();
  std::from_chars(settings.root.data() + colon + 1, end, launch.port);
  launch.port_by = fmt::format("PITH_ROOT={}", settings.root);
  launch.job = "by hand";
  return launch;
}

}  // namespace

std::span<const std::string_view> launch_variables() { return names; }

Expected<Launch> read_launch(const Variables& variables, const Settings& settings) {
  const Expected<std::optional<Launch>> found = find_launch(variables, settings);
  if (!found) return found.error();
  if (!*found) return nothing_found(Reader(variables), settings.launcher);
  return **found;
}

Expected<std::optional<Launch>> find_launch(const Variables& variables, const Settings& settings) {
  if (settings.rank >= 0 || settings.size != 0 || !settings.root.empty()) {
    const Expected<Launch> told = by_hand(settings);
    if (!told) return told.error();
    return std::optional(*told);
  }
  Reader read(variables);
  std::optional<Launch> launch;
  std::size_t first = 0;
  for (std::size_t i = 0; i < marks.size(); ++i) {
    const bool meant = settings.launcher.empty() || settings.launcher == marks[i].setting;
    if (!meant || !carries(read, marks[i])) continue;
    Launch found = readers[i](read);
    if (launch) {
      const Error wrong = conflict_of(read, {marks[first], *launch}, {marks[i], found});
      if (wrong) return wrong;
      continue;
    }
    if (read.wrong) return read.wrong;
    launch = std::move(found);
    launch->launcher = marks[i].launcher;
    first = i;
  }
  if (!launch) {
    if (settings.launcher.empty() && !has_trace(read)) return launch;
    return nothing_found(read, settings.launcher);
  }
  if (launch->way != Launch::Way::address || settings.port == 0) return launch;
  launch->port = settings.port;
  launch->port_by = fmt::format("PITH_PORT={}", settings.port);
  return launch;
}

std::string first_host(std::string_view list) {
  const std::string_view head = list.substr(0, list.find_first_of(",["));
  std::string host(head);
  if (head.size() < list.size() && list[head.size()] == '[') {
    const std::string_view inside = list.substr(head.size() + 1);
    const std::size_t close = inside.find(']');
    const std::size_t digits = inside.find_first_not_of("0123456789");
    if (close == std::string_view::npos || digits == 0 || digits > close) return {};
    host += inside.substr(0, digits);
    const std::string_view rest = inside.substr(close + 1);
    const std::string_view tail = rest.substr(0, rest.find(','));
    if (tail.find_first_of("[]") != std::string_view::npos) return {};  // multi-dimensional lists
    host += tail;
  }
  constexpr std::string_view allowed =
      "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.";
  return host.find_first_not_of(allowed) == std::string::npos ? host : "";
}

bool is_loopback(std::string_view host) {
  return host == "localhost" || host == "::1" ||
         (host.starts_with("127.") &&
          host.find_first_not_of("0123456789.") == std::string_view::npos);
}

}  // namespace pith
