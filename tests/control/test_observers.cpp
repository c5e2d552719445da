// Observers of a rank: what they are told, and that none of them holds the rank up.
#include <poll.h>
#include <sys/socket.h>

#include <memory>
#include <string>
#include <vector>

#include "catch.hpp"
#include "control/control_frames.hpp"
#include "control/observers/observers.hpp"

using namespace pith;

namespace {

constexpr std::uint64_t second = 1'000'000'000;

// An observer's end of a connection.
class Watcher {
 public:
  explicit Watcher(Observers& observers, std::uint64_t now_ns = second) {
    int ends[2];
    REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, ends) == 0);
    end_ = Descriptor(ends[0]);
    observers.add(Descriptor(ends[1]), now_ns);
  }

  // What has come since the last time.
  std::vector<std::string> read() {
    char buffer[65536];
    ssize_t got = 0;
    while ((got = ::recv(end_.get(), buffer, sizeof buffer, 0)) > 0) {
      frames_.arrived({buffer, static_cast<std::size_t>(got)});
    }
    is_open_ = got < 0;
    std::vector<std::string> texts;
    std::string_view text;
    while ((last_ = frames_.next(text)) == ControlFrames::What::message) texts.emplace_back(text);
    return texts;
  }
  bool is_open() const { return is_open_; }
  bool has_goodbye() const { return last_ == ControlFrames::What::goodbye; }
  int descriptor() const { return end_.get(); }
  void leave() { end_.reset(); }

 private:
  Descriptor end_;
  ControlFrames frames_;
  ControlFrames::What last_ = ControlFrames::What::nothing;
  bool is_open_ = true;
};

}  // namespace

TEST_CASE("observers are shown texts until the end", "[observers]") {
  Observers observers;
  CHECK_FALSE(observers.any_ready());
  observers.show("nobody sees it", second);
  Watcher one(observers);
  Watcher other(observers);
  CHECK(observers.any_ready());
  observers.show("first", second);
  observers.show("second", second);
  CHECK(one.read() == std::vector<std::string>{"first", "second"});
  other.leave();
  observers.turn(second);
  observers.close();
  CHECK(one.read().empty());
  CHECK(one.has_goodbye());
  CHECK_FALSE(one.is_open());
  CHECK_FALSE(observers.any_ready());
}

TEST_CASE("an observer that does not read is passed by, then hung up on", "[observers]") {
  const std::string text(4 << 20, 'x');  // more than a socket takes
  Observers observers;
  Watcher slow(observers);
  observers.show(text, second);
  CHECK_FALSE(observers.any_ready());
  Watcher quick(observers);
  observers.show("short", second);
  CHECK(quick.read() == std::vector<std::string>{"short"});
  CHECK(quick.is_open());
  quick.leave();
  // It gets the rest of what it was shown, and nothing of what came meanwhile.
  std::vector<std::string> seen;
  for (int i = 0; i < 1000 && seen.empty(); ++i) {
    seen = slow.read();
    observers.turn(2 * second);
  }
  CHECK(seen == std::vector<std::string>{text});
  CHECK(observers.any_ready());
  observers.show(text, 2 * second);
  observers.turn(2 * second + Observers::patience_ns);
  static_cast<void>(slow.read());
  CHECK(slow.is_open());
  observers.show(text, 3 * second + Observers::patience_ns);
  observers.turn(4 * second + Observers::patience_ns);
  observers.turn(5 * second + 2 * Observers::patience_ns);
  static_cast<void>(slow.read());
  CHECK_FALSE(slow.is_open());
}

TEST_CASE("an observer that talks is hung up on", "[observers]") {
  Observers observers;
  Watcher chatty(observers);
  Watcher silent(observers);
  ::send(chatty.descriptor(), "word", 4, MSG_DONTWAIT);
  observers.turn(second);
  observers.show("text", second);
  CHECK(chatty.read().empty());
  CHECK(silent.read() == std::vector<std::string>{"text"});
}

TEST_CASE("there are only so many observers", "[observers]") {
  Observers observers;
  std::vector<std::unique_ptr<Watcher>> all;
  for (std::size_t i = 0; i <= Observers::most; ++i) {
    all.push_back(std::make_unique<Watcher>(observers));
  }
  observers.show("text", second);
  CHECK(all[Observers::most - 1]->read().size() == 1);
  CHECK(all[Observers::most]->read().empty());
  CHECK_FALSE(all[Observers::most]->is_open());
}
