// Hosts for ranks on this machine: network namespaces joined by links of one rate.
//
// Each host is a process that does nothing but hold its namespaces. Nothing has a name: the hosts,
// their devices and links go when these processes do, at the latest with the one that made them.
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

namespace pith::demo {

class Hosts {
 public:
  // Why there can be none here, in one line; empty where there can.
  static std::string unavailable();

  // `bits_per_s`: of each host's link, either way. Throws std::runtime_error naming the command
  // that failed.
  Hosts(int count, double bits_per_s);
  ~Hosts();
  Hosts(const Hosts&) = delete;
  Hosts& operator=(const Hosts&) = delete;

  // The process whose namespaces are the host's.
  pid_t holder(int host) const { return holders_[static_cast<std::size_t>(host)]; }

  // Moves the calling process there. False, with errno, where that fails; may be called between
  // fork and exec.
  static bool enter(pid_t holder);

 private:
  void connect(int number, double bits_per_s);
  void end_all();

  std::vector<pid_t> holders_;
  pid_t hub_ = 0;
};

// Bytes that this host's eth0 has sent, headers included.
double sent_bytes();

}  // namespace pith::demo
