// The buffers registered with a communicator. A registration is only a handle: peers can access
// memory of pithMemAlloc without it, and other memory is sent by messages in any case.
#pragma once

#include <memory>
#include <vector>

namespace pith::api {

class Registrations {
 public:
  void* add(const void* buffer, std::size_t bytes) {
    return made_.emplace_back(std::make_unique<Registration>(buffer, bytes)).get();
  }
  // False if there is no registration with this handle.
  bool remove(const void* handle) {
    return std::erase_if(made_, [handle](const auto& one) { return one.get() == handle; }) != 0;
  }

  void clear() { made_.clear(); }

 private:
  struct Registration {
    Registration(const void* b, std::size_t n) : buffer(b), bytes(n) {}
    const void* buffer;
    std::size_t bytes;
  };
  std::vector<std::unique_ptr<Registration>> made_;
};

}  // namespace pith::api
