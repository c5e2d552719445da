// Who watches what this rank tells: connections that have proved the job's secret and only read.
// pith-explain --attach is one.
//
// Nobody waits for an observer. One that has not read the last text yet is passed by, so that what
// waits for it here is one text; one that reads nothing for long is hung up on. Thread-safe.
#pragma once

#include <atomic>
#include <cstdint>
#include <list>
#include <mutex>
#include <string>

#include "transport/socket.hpp"

namespace pith {

class Observers {
 public:
  static constexpr std::size_t most = 8;
  static constexpr std::uint64_t patience_ns = 10'000'000'000;

  // Where they connect to.
  const std::string& address() const { return address_; }
  void set_address(std::string address) { address_ = std::move(address); }

  // Hangs up on it where there are enough.
  void add(Descriptor connection, std::uint64_t now_ns);
  // Whether one of them is ready for a text now.
  bool any_ready() const;
  // To those that are ready.
  void show(const std::string& text, std::uint64_t now_ns);
  // Sends what waits, and forgets those that are gone.
  void turn(std::uint64_t now_ns);
  // Says goodbye to those that have read all.
  void close();

 private:
  struct Observer {
    Descriptor connection;
    std::string out;
    std::size_t out_done = 0;
    std::uint64_t moved_ns = 0;  // when something was last sent, or nothing waited
    bool gone = false;
  };

  static bool is_open(const Observer& observer);
  static void send(Observer& observer, std::uint64_t now_ns);

  std::string address_;
  mutable std::mutex mutex_;
  std::list<Observer> observers_;
  std::atomic<std::size_t> count_{0};  // looked at in every turn, mostly 0
};

}  // namespace pith
