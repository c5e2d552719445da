// Wakes peers of one host that this rank keeps no descriptor for: each rank has one datagram
// socket, by which it rings others and is rung.
//
// Any process of the host can ring, too. That only ends a sleep early, and no sleep is long.
#pragma once

#include <string_view>

#include "core/error.hpp"
#include "transport/shm/abstract_name.hpp"
#include "transport/socket.hpp"

namespace pith {

class ShmBell {
 public:
  // The bell of the rank whose shared memory is attached by this name.
  static AbstractName of(std::string_view name);

  Error listen(const AbstractName& own);
  void ring(const AbstractName& peers) const;
  // Readable once it has been rung; -1: it does not listen.
  int descriptor() const { return socket_.get(); }
  void drain() const;

 private:
  Descriptor socket_;
};

}  // namespace pith
