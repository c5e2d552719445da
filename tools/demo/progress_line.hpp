// A line of the terminal that is drawn again and again while work goes on, and then is gone.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdio>
#include <string_view>

namespace pith::demo {

class ProgressLine {
 public:
  // Silent unless `shown`, and where `out` is no terminal.
  explicit ProgressLine(bool shown, std::FILE* out = stdout);
  ~ProgressLine() { erase(); }
  ProgressLine(const ProgressLine&) = delete;
  ProgressLine& operator=(const ProgressLine&) = delete;

  // "label  [####----]   3 of 110 steps", not too wide for 80 columns, for a longer line would
  // leave its upper part behind each time. As often as an eye can follow; else it does nothing.
  void draw(std::string_view label, std::size_t done, std::size_t steps);
  // Also what another process has drawn there, as one that was killed.
  void erase();

 private:
  bool shown_;
  std::FILE* out_;
  std::chrono::steady_clock::time_point drawn_{};
};

}  // namespace pith::demo
