// What a call asks whoever chooses for it: algorithms know each other by name alone. Implemented by
// src/model; the answers are the same on all ranks.
#pragma once

#include <cstddef>
#include <cstdint>

namespace pith {

struct Algorithm;
enum class Collective : std::uint8_t;
class Hosts;
struct Spec;

class Chooser {
 public:
  // Of a dense call; `bytes` as in Shape.
  virtual const Algorithm& algorithm(Collective collective, std::size_t bytes) const = 0;
  // Whether a call of so many elements is better dense, where its spec leaves that open. `hosts`:
  // of a call that tells them apart, else null.
  virtual bool is_faster_dense(const Spec& spec, std::size_t count, const Hosts* hosts) const = 0;

 protected:
  ~Chooser() = default;
};

}  // namespace pith
