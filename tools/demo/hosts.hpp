// Simulated hosts for ranks on this machine: network namespaces, connected by links of one rate.
//
// Each host is a process that only holds its namespaces. Nothing is named, so hosts, devices and
// links disappear with these processes, at the latest with the process that created them.
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

namespace pith::demo {

class Hosts {
 public:
  // Why hosts cannot be created here, in one line; empty if they can.
  static std::string unavailable();

  // `bits_per_s`: rate of each host's link, in both directions. Throws std::runtime_error with the
  // command that failed.
  Hosts(int count, double bits_per_s);
  ~Hosts();
  Hosts(const Hosts&) = delete;
  Hosts& operator=(const Hosts&) = delete;

  // The process that holds the host's namespaces.
  pid_t holder(int host) const { return holders_[static_cast<std::size_t>(host)]; }

  // Changes the rate of all links.
  void set_rate(double bits_per_s);

  // Moves the calling process into the host. On failure returns false and sets errno. May be called
  // between fork and exec.
  static bool enter(pid_t holder);

 private:
  void connect(int number);
  void limit_rate(int number, double bits_per_s);
  void end_all();

  std::vector<pid_t> holders_;
  pid_t hub_ = 0;
};

// Bytes that this host's eth0 has sent, headers included.
double sent_bytes();

}  // namespace pith::demo
