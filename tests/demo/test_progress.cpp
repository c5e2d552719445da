// The demo's line of progress, on a terminal of 80 columns and where there is none.
#include <fcntl.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <string>

#include "catch.hpp"
#include "tools/demo/progress_line.hpp"

using namespace pith::demo;

namespace {

// Both ends of a pseudo terminal, of which a program has one.
class Terminal {
 public:
  Terminal() : screen_(posix_openpt(O_RDWR | O_NOCTTY | O_NONBLOCK)) {
    REQUIRE(grantpt(screen_) == 0);
    REQUIRE(unlockpt(screen_) == 0);
    program_ = std::fopen(ptsname(screen_), "w");
    REQUIRE(program_ != nullptr);
  }
  ~Terminal() {
    std::fclose(program_);
    close(screen_);
  }
  Terminal(const Terminal&) = delete;
  Terminal& operator=(const Terminal&) = delete;

  std::FILE* program() const { return program_; }
  std::string shown() const {
    char text[4096];
    const ssize_t length = read(screen_, text, sizeof(text));
    return {text, static_cast<std::size_t>(length > 0 ? length : 0)};
  }

 private:
  int screen_;
  std::FILE* program_ = nullptr;
};

}  // namespace

TEST_CASE("a line of progress fits 80 columns, and leaves nothing behind", "[demo]") {
  const Terminal terminal;
  {
    ProgressLine line(true, terminal.program());
    line.draw("ar-topk:density=0.01,election=staleness,bypass=never", 12345, 23456);
    const std::string drawn = terminal.shown();
    CHECK(drawn.starts_with("\rar-topk:density=0.01"));
    CHECK(drawn.ends_with("]  12345 of 23456 steps"));
    CHECK(drawn.size() - 1 == 79);
  }
  CHECK(terminal.shown() == "\r\x1b[K");
  {
    ProgressLine line(true, terminal.program());
    line.draw("top-k", 55, 110);
    CHECK(terminal.shown() == "\rtop-k  [############------------]   55 of 110 steps");
  }
}

TEST_CASE("a line of progress is not drawn at each step", "[demo]") {
  const Terminal terminal;
  ProgressLine line(true, terminal.program());
  for (std::size_t step = 0; step < 1000; ++step) line.draw("fast", step, 1000);
  const std::string drawn = terminal.shown();
  CHECK(drawn.starts_with("\rfast"));
  CHECK(drawn.size() < 1000);  // of 40000
}

TEST_CASE("a line of progress is for terminals only", "[demo]") {
  std::FILE* const file = std::tmpfile();
  REQUIRE(file != nullptr);
  {
    ProgressLine line(true, file);
    line.draw("a file", 1, 2);
  }
  CHECK(std::ftell(file) == 0);
  std::fclose(file);
  const Terminal terminal;
  {
    ProgressLine line(false, terminal.program());
    line.draw("not shown", 1, 2);
  }
  CHECK(terminal.shown().empty());
}
