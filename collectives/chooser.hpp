// Choices that a call leaves to src/model, which implements this interface, so that algorithms need
// not know each other. All ranks get the same answers.
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
  // The algorithm of a dense call; `bytes` as in Shape.
  virtual const Algorithm& algorithm(Collective collective, std::size_t bytes) const = 0;
  // Whether a compressed call of `count` elements is faster dense, if its spec leaves that open
  // (bypass=auto). `hosts`: null unless the call sums inside hosts first.
  virtual bool is_faster_dense(const Spec& spec, std::size_t count, const Hosts* hosts) const = 0;

 protected:
  ~Chooser() = default;
};

}  // namespace pith
