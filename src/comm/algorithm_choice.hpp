// Which algorithm a call of this communicator takes: the one that the settings name, else by rule.
#pragma once

#include <string>
#include <string_view>

#include "comm/algorithm_rule.hpp"
#include "comm/call_args.hpp"
#include "comm/links.hpp"

namespace pith {

class AlgorithmChoice {
 public:
  explicit AlgorithmChoice(Links& links) : links_(links) {}

  // As the setting ALGO says.
  Error read(const std::string& text);
  // What the choice depends on.
  Shape shape_of(const CollectiveArgs& args) const;
  const Algorithm& of(const CollectiveArgs& args) const {
    const Algorithm* const forced = forced_[static_cast<std::size_t>(args.collective)];
    return forced ? *forced : default_algorithm(shape_of(args), args.collective);
  }
  // Null where no algorithm is of a collective of this name. The name ends with a zero.
  const Algorithm* of(std::string_view collective, std::size_t count, DType type) const;

 private:
  Links& links_;
  ForcedAlgorithms forced_{};
};

}  // namespace pith
