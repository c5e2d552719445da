// A terminal line that is redrawn while work goes on, and erased afterwards.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdio>
#include <string_view>

namespace pith::demo {

class ProgressLine {
 public:
  // Silent unless `shown`, or if `out` is not a terminal.
  explicit ProgressLine(bool shown, std::FILE* out = stdout);
  ~ProgressLine() { erase(); }
  ProgressLine(const ProgressLine&) = delete;
  ProgressLine& operator=(const ProgressLine&) = delete;

  // "label  [####----]   3 of 110 steps", cut to less than 80 columns, since a wrapped line could
  // not be erased. Limited in rate: most calls do nothing.
  void draw(std::string_view label, std::size_t done, std::size_t steps);
  // Also erases a line that another process, since killed, has drawn.
  void erase();

 private:
  bool shown_;
  std::FILE* out_;
  std::chrono::steady_clock::time_point drawn_{};
};

}  // namespace pith::demo
