// What the processes of a run leave behind in the system: names in /dev/shm, System V segments,
// processes that they have started themselves.
#pragma once

#include <dirent.h>
#include <sys/prctl.h>
#include <sys/shm.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

namespace ranks {

class LeftOver {
 public:
  // Made before the run forks: orphans of its processes become children of this one.
  LeftOver() : names_(names_in_dev_shm()) { prctl(PR_SET_CHILD_SUBREAPER, 1); }

  // Once all `children` have ended; a line for each thing, empty where there is none. Processes are
  // ended, the rest stays. `killed`: some children may have been, in any moment. Precondition: this
  // process has no other children. `patience_s`: how long a run beside this one may take.
  std::string find(const std::vector<pid_t>& children, bool killed, double patience_s) const {
    return processes() + segments_of(children, killed) + new_names(killed, patience_s);
  }

 private:
  using Names = std::set<std::string>;

  static Names names_in_dev_shm() {
    Names names;
    if (DIR* folder = opendir("/dev/shm")) {
      while (const dirent* entry = readdir(folder)) names.insert(entry->d_name);
      closedir(folder);
    }
    return names;
  }

  // Other programs may run beside the tests: what one of them made, it holds, or it is another
  // user's. Nobody holds what an ended process has left.
  std::string new_names(bool killed, double patience_s) const {
    std::string lines;
    for (const std::string& name : names_in_dev_shm()) {
      if (names_.contains(name)) continue;
      const std::string path = "/dev/shm/" + name;
      struct stat status {};
      if (stat(path.c_str(), &status) != 0 || status.st_uid != geteuid()) continue;
      if (is_held(path) || access(path.c_str(), F_OK) != 0) continue;  // or let go of meanwhile
      if (name.starts_with("ucx_shm_posix") && is_of_the_killed(path, killed, patience_s)) continue;
      lines += path + " is left over\n";
    }
    return lines;
  }

  // UCX looks whether it could: a rank killed in that moment leaves it. Whose ranks may have been
  // killed removes it; a run beside that one waits until it has.
  static bool is_of_the_killed(const std::string& path, bool killed, double patience_s) {
    if (killed) unlink(path.c_str());
    const auto until = std::chrono::steady_clock::now() + std::chrono::duration<double>(patience_s);
    while (access(path.c_str(), F_OK) == 0) {
      if (std::chrono::steady_clock::now() > until) return false;
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    return true;
  }

  static bool is_held(const std::string& path) {
    std::error_code gone;  // processes end while they are looked at
    for (const auto& process : std::filesystem::directory_iterator("/proc", gone)) {
      const std::string number = process.path().filename();
      if (number.find_first_not_of("0123456789") != std::string::npos) continue;
      std::ifstream maps(process.path() / "maps");
      for (std::string line; std::getline(maps, line);) {
        if (line.find(path) != std::string::npos) return true;
      }
      for (const auto& file : std::filesystem::directory_iterator(process.path() / "fd", gone)) {
        if (std::filesystem::read_symlink(file.path(), gone) == path) return true;
      }
    }
    return false;
  }

  static std::string segments_of(const std::vector<pid_t>& children, bool killed) {
    std::string lines;
    std::ifstream table("/proc/sysvipc/shm");
    std::string line;
    std::getline(table, line);  // names of the columns
    while (std::getline(table, line)) {
      std::istringstream columns(line);
      std::string id;
      std::string other;
      pid_t creator = 0;
      columns >> other >> id >> other >> other >> creator;
      if (std::find(children.begin(), children.end(), creator) == children.end()) continue;
      // Only UCX makes any, and gives them up as soon as it has attached them: see new_names().
      if (killed) {
        shmctl(std::stoi(id), IPC_RMID, nullptr);
        continue;
      }
      lines += "the System V segment " + id + " is left over\n";
    }
    return lines;
  }

  // What is just ending is given a second.
  static std::string processes() {
    using Clock = std::chrono::steady_clock;
    const Clock::time_point until = Clock::now() + std::chrono::seconds(1);
    pid_t ended = 0;
    while ((ended = waitpid(-1, nullptr, WNOHANG)) >= 0 && Clock::now() < until) {
      if (ended == 0) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    if (ended < 0) return {};  // no children any more
    std::string lines;
    const std::string self = std::to_string(getpid());
    std::ifstream list("/proc/self/task/" + self + "/children");
    for (pid_t child = 0; list >> child;) {
      lines += "process " + std::to_string(child) + " still runs\n";
      kill(child, SIGKILL);
      waitpid(child, nullptr, 0);
    }
    return lines;
  }

  const Names names_;
};

}  // namespace ranks
