// Parses PITH_TRANSPORT: which transports may be used between two ranks, and in which order.
//
//   ""         all of them: threads and shared memory where ranks share it, UCX where it finds
//              RDMA, TCP elsewhere
//   "shm,tcp"  these, in this order; each must be usable
//   "^ucx"     all but these
#pragma once

#include <span>
#include <string_view>
#include <vector>

#include "settings/transport_names.hpp"

namespace pith {

class TransportRule {
 public:
  using Names = std::span<const std::string_view>;

  // `known`: all transports in default order of preference. Precondition: valid(text, known).
  explicit TransportRule(std::string_view text, Names known = transport_names);
  static bool valid(std::string_view text, Names known = transport_names);

  bool allows(std::string_view name) const;
  // Named explicitly, so it is an error if it is not available.
  bool names(std::string_view name) const { return named_ && allows(name); }
  const std::vector<std::string_view>& order() const { return order_; }

 private:
  std::vector<std::string_view> order_;  // some of `known`
  bool named_ = false;
};

}  // namespace pith
