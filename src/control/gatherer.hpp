// What a start-up needs: all ranks tell each other a blob, several times over.
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
  // Collective: every rank's blob, by rank. Fails on all ranks where one is missing.
  virtual Expected<std::vector<std::string>> gather(const std::string& mine) = 0;
  // Of the whole start-up: a deadline, and whether it has failed elsewhere meanwhile.
  Patience patience() const {
    return {deadline_ns_, [this] { return static_cast<bool>(failure()); }};
  }
  // Why it cannot succeed any more, as far as is known; does not wait.
  virtual Error failure() const = 0;
  // The ranks of the job that take part, by the numbers by which errors call them; empty: by rank.
  virtual std::vector<int> named() const { return {}; }
  // By whom this rank's part is cancelled; null: by nobody.
  const Cancellation* cancellation() const { return cancellation_.get(); }

 protected:
  static std::uint64_t deadline_after(double seconds);
  Error cancelled() const { return cancellation_ ? cancellation_->error() : Error(); }

  std::shared_ptr<const Cancellation> cancellation_;
  std::uint64_t deadline_ns_ = 0;
};

}  // namespace pith
