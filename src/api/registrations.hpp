// The buffers that a communicator's user has registered. Memory of pithMemAlloc is reached by
// everybody anyway and private memory goes by messages, so a registration is a handle and no more.
#pragma once

#include <memory>
#include <vector>

namespace pith::api {

class Registrations {
 public:
  void* add(const void* buffer, std::size_t bytes) {
    return made_.emplace_back(std::make_unique<Registration>(buffer, bytes)).get();
  }
  // False where there is none of that handle.
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
