#include "frame/meeting_point.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <optional>
#include <stdexcept>
#include <system_error>

#include "frame/team.hpp"
#include "settings/settings.hpp"
#include "startup/launch.hpp"

namespace pith_perf {

IdPipe::IdPipe() {
  if (pipe2(ends_, O_CLOEXEC) != 0) throw std::system_error(errno, std::generic_category(), "pipe");
}

IdPipe::~IdPipe() {
  for (const int end : ends_) close(end);
}

Start IdPipe::meet(int process, int processes) {
  // Writing one id is atomic, so the pipe only ever contains whole ids.
  static_assert(sizeof(pithUniqueId) <= 512, "more than POSIX writes atomically");
  Start start = {process, processes, {}};
  if (process == 0) {
    must(pithGetUniqueId(&start.id), "pithGetUniqueId");
    for (int other = 1; other < processes; ++other) {
      if (write(ends_[1], &start.id, sizeof(start.id)) == sizeof(start.id)) continue;
      throw std::system_error(errno, std::generic_category(), "sending the unique id");
    }
    return start;
  }
  if (read(ends_[0], &start.id, sizeof(start.id)) != sizeof(start.id)) {
    throw std::system_error(errno, std::generic_category(), "receiving the unique id");
  }
  return start;
}

namespace {

// As nccl-tests without MPI: one process with the ranks of -t and -g.
Start alone() {
  Start start;
  must(pithGetUniqueId(&start.id), "pithGetUniqueId");
  return start;
}

using Found = pith::Expected<std::optional<pith::Launch>>;

// Empty if no launcher's variables are set.
Found launch_of_this_process() {
  const pith::Expected<pith::Settings> settings = pith::settings_from_environment();
  if (!settings) throw std::runtime_error(settings.error().message());
  return pith::find_launch(pith::variables_from_environment(pith::launch_variables()), *settings);
}

}  // namespace

void check_not_launched(const Options& options) {
  const Found found = launch_of_this_process();
  if (!found) {
    throw std::runtime_error(
        fmt::format("--ranks is {}, and a launcher may have started this process, too: {}",
                    options.ranks, found.error().message()));
  }
  if (!*found || (*found)->size == 1) return;
  const pith::Launch& launch = **found;
  throw std::runtime_error(fmt::format(
      "--ranks is {}, and {} has started this process as rank {} of {}: expected ranks to be "
      "started by one of the two",
      options.ranks, launch.launcher, launch.rank, launch.size));
}

// The first communicator only distributes an id, from which each thread creates its ranks.
Start start_from_environment() {
  const Found launch = launch_of_this_process();
  if (launch && !*launch) return alone();
  pithComm_t comm = nullptr;
  must(pithCommInitEnv(&comm), "pithCommInitEnv");
  Start start;
  must(pithCommUserRank(comm, &start.process), "pithCommUserRank");
  must(pithCommCount(comm, &start.processes), "pithCommCount");
  if (start.process == 0) must(pithGetUniqueId(&start.id), "pithGetUniqueId");
  must(pithBcast(&start.id, sizeof(start.id), pithUint8, 0, comm, nullptr), "pithBcast");
  must(pithCommDestroy(comm), "pithCommDestroy");
  return start;
}

}  // namespace pith_perf
