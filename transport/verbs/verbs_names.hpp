// Names by which ranks speak of messages: a place in a table, and how often it has been used
// before. Either side may forget a message while the other one still speaks of it; such a name
// finds nothing.
#pragma once

#include <cstddef>
#include <cstdint>

namespace pith {

class VerbsName {
 public:
  explicit VerbsName(std::uint32_t name) : name_(name) {}
  static VerbsName first(std::size_t place) { return VerbsName(static_cast<std::uint32_t>(place)); }

  std::uint32_t value() const { return name_; }
  std::size_t place() const { return name_ & place_mask; }
  // The next message at the same place.
  VerbsName next() const { return VerbsName(name_ + place_mask + 1); }

 private:
  static constexpr std::uint32_t place_mask = (1u << 20) - 1;
  std::uint32_t name_;
};

}  // namespace pith
