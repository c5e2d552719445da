// The all-gather that a start-up needs, for as many rounds as it asks for.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "control/cancellation.hpp"
#include "transport/socket.hpp"

namespace pith {

class Gatherer {
 public:
  explicit Gatherer(double timeout_s = 0, std::shared_ptr<const Cancellation> cancellation = {});
  virtual ~Gatherer() = default;
  // Collective: returns every rank's blob, by rank. Fails on all ranks where one is missing.
  virtual Expected<std::vector<std::string>> gather(const std::string& mine) = 0;
  // For waits within the start-up: its deadline, and whether it has failed elsewhere.
  Patience patience() const {
    return {deadline_ns_, [this] { return static_cast<bool>(failure()); }};
  }
  // Why the start-up cannot succeed any more, as far as is known; does not block.
  virtual Error failure() const = 0;
  // The ranks of the job that take part, by the numbers that errors use; empty: by rank.
  virtual std::vector<int> named() const { return {}; }
  // Cancels this rank's part; may be null.
  const Cancellation* cancellation() const { return cancellation_.get(); }

 protected:
  static std::uint64_t deadline_after(double seconds);
  Error cancelled() const { return cancellation_ ? cancellation_->error() : Error(); }

  std::shared_ptr<const Cancellation> cancellation_;
  std::uint64_t deadline_ns_ = 0;
};

}  // namespace pith
