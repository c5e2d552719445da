// Noise at every TCP port on which this process listens, whoever opened it.
#pragma once

#include <dirent.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cstdio>
#include <deque>
#include <fstream>
#include <random>
#include <set>
#include <string>
#include <thread>

#include "unauthenticated_clients.hpp"

namespace pith::test {

// Inodes of the sockets of this process.
inline std::set<unsigned long> own_sockets() {
  std::set<unsigned long> inodes;
  DIR* all = opendir("/proc/self/fd");
  while (const dirent* entry = all ? readdir(all) : nullptr) {
    std::array<char, 64> target{};
    const std::string path = std::string("/proc/self/fd/") + entry->d_name;
    unsigned long inode = 0;
    if (readlink(path.c_str(), target.data(), target.size() - 1) <= 0) continue;
    if (std::sscanf(target.data(), "socket:[%lu]", &inode) == 1) inodes.insert(inode);
  }
  if (all) closedir(all);
  return inodes;
}

// Those at which this process listens, of IPv4.
inline std::set<unsigned> own_ports() {
  constexpr unsigned listens = 0x0a;
  const std::set<unsigned long> own = own_sockets();
  std::set<unsigned> ports;
  std::ifstream table("/proc/self/net/tcp");
  for (std::string line; std::getline(table, line);) {
    unsigned port = 0;
    unsigned state = 0;
    unsigned long inode = 0;
    const int read =
        std::sscanf(line.c_str(), " %*d: %*x:%x %*x:%*x %x %*x:%*x %*x:%*x %*x %*u %*u %lu", &port,
                    &state, &inode);
    if (read == 3 && state == listens && own.contains(inode)) ports.insert(port);
  }
  return ports;
}

// Silent, half-closed and noisy connections, for as long as it lives.
class PortNoise {
 public:
  PortNoise() : thread_([this] { trouble(); }) {}
  ~PortNoise() {
    stop_ = true;
    thread_.join();
  }
  PortNoise(const PortNoise&) = delete;
  PortNoise& operator=(const PortNoise&) = delete;
  int calls() const { return calls_; }

 private:
  void trouble() {
    std::mt19937 random(3);
    while (!stop_) {
      for (const unsigned port : own_ports()) call("127.0.0.1:" + std::to_string(port), random);
      while (open_.size() > 60) open_.pop_front();
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
  }

  void call(const std::string& address, std::mt19937& random) {
    std::string noise(random() % 5000, '\0');
    for (char& byte : noise) byte = static_cast<char>(random());
    for (const std::string& words : {std::string(), std::string("GET / HTTP/1.1\r\n\r\n"), noise}) {
      open_.push_back(call_port(address));
      if (!open_.back()) continue;
      ++calls_;
      static_cast<void>(
          ::send(open_.back().get(), words.data(), words.size(), MSG_NOSIGNAL | MSG_DONTWAIT));
      if (random() % 2 == 0) ::shutdown(open_.back().get(), SHUT_WR);
    }
  }

  std::deque<Descriptor> open_;
  std::atomic<bool> stop_{false};
  std::atomic<int> calls_{0};
  std::thread thread_;
};

}  // namespace pith::test
