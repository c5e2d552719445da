#include "control/gatherer.hpp"

#include "core/clock.hpp"

namespace pith {

namespace {

// The root's deadline comes first, for the root knows who is missing.
constexpr double grace_s = 2;

}  // namespace

Gatherer::Gatherer(double timeout_s, std::shared_ptr<const Cancellation> cancellation)
    : cancellation_(std::move(cancellation)), deadline_ns_(deadline_after(timeout_s)) {}

std::uint64_t Gatherer::deadline_after(double seconds) {
  return monotonic_ns() + static_cast<std::uint64_t>((seconds + grace_s) * 1e9);
}

}  // namespace pith
