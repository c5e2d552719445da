// Which streams carry what one end sends, and that the other end puts it together again.
#include <algorithm>
#include <cstring>
#include <deque>
#include <initializer_list>
#include <iterator>
#include <memory>
#include <random>
#include <vector>

#include "catch.hpp"
#include "core/mailbox.hpp"
#include "core/scheduler.hpp"
#include "transport/tcp/tcp_outbox.hpp"
#include "transport/tcp/tcp_reader.hpp"

namespace pith::test {
namespace {

constexpr std::size_t cut_bytes = 10'000;
constexpr std::size_t piece_bytes = 6'000;
constexpr Tag tag{1, 1, 1, 1};

using Data = std::vector<std::byte>;

// An outbox, and readers that get what it writes, stream by stream, in bits of random length.
class Pair {
 public:
  Pair(int streams, int long_stream, unsigned seed)
      : random_(seed),
        outbox_(pool_, scheduler_, {cut_bytes, piece_bytes, long_stream}, streams),
        mailbox_(scheduler_, 1),
        inbox_(mailbox_, 0, long_stream < 0 ? 1 : streams),
        on_the_way_(static_cast<std::size_t>(streams)),
        written_(static_cast<std::size_t>(streams)) {
    for (int s = 0; s < streams; ++s) readers_.emplace_back(inbox_, s, 0);
  }

  void send(std::size_t bytes) {
    Data& data = messages_.emplace_back(bytes);
    for (std::byte& one : data) one = static_cast<std::byte>(random_());
    Send& send = sends_.emplace_back();
    send.header.comm = tag.comm;
    send.header.call = tag.call;
    send.header.step = tag.step;
    send.header.lane = tag.lane;
    send.header.length = static_cast<std::uint32_t>(bytes);
    send.data = data.data();
    const int at_once = outbox_.stream_at_once(send.header);
    if (at_once < 0) return outbox_.push(send);
    const MessageOpening opening = whole_opening(send.header);
    const std::size_t whole = sizeof opening + bytes;
    const std::size_t done = random_() % 2 == 0 ? whole : random_() % whole;
    const iovec parts[2] = {{const_cast<MessageOpening*>(&opening), sizeof opening},
                            {data.data(), bytes}};
    put(static_cast<std::size_t>(at_once), parts, done);
    if (done < whole) outbox_.push_rest(send, opening, done);
  }
  // Null, or what a reader says is wrong.
  const char* step() {
    const std::size_t s = random_() % readers_.size();
    const std::size_t most = 1 + random_() % 5'000;
    if (random_() % 2 == 0) {
      const std::span<const iovec> parts = outbox_.next(static_cast<int>(s));
      std::size_t bytes = 0;
      for (const iovec& part : parts) bytes += part.iov_len;
      bytes = std::min(bytes, most);
      if (bytes == 0) return nullptr;
      put(s, parts, bytes);
      outbox_.wrote(static_cast<int>(s), bytes);
      return nullptr;
    }
    if (const char* fault = readers_[s].resume()) return fault;
    return read(s, most);
  }
  bool at_rest() const {
    return outbox_.empty() && std::ranges::all_of(on_the_way_, &std::deque<std::byte>::empty) &&
           inbox_.empty() &&
           std::ranges::none_of(readers_, [](const TcpReader& one) { return one.stalled(); });
  }
  // That the messages have come, in order although all have one tag.
  bool all_have_come() {
    for (const Data& sent : messages_) {
      Data got(sent.size() + 1);
      Receive receive;
      receive.comm = &comm_;
      receive.peer = 0;
      receive.tag = tag;
      receive.into = got.data();
      receive.room = got.size();
      if (!mailbox_.start(receive) || receive.error || receive.length != sent.size()) return false;
      got.resize(sent.size());
      if (got != sent) return false;
    }
    return true;
  }
  std::size_t written(std::size_t stream) const { return written_[stream]; }

 private:
  void put(std::size_t s, std::span<const iovec> parts, std::size_t bytes) {
    written_[s] += bytes;
    for (const iovec& part : parts) {
      const auto* const begin = static_cast<const std::byte*>(part.iov_base);
      const std::size_t some = std::min(bytes, part.iov_len);
      on_the_way_[s].insert(on_the_way_[s].end(), begin, begin + some);
      bytes -= some;
    }
  }
  const char* read(std::size_t s, std::size_t most) {
    std::size_t got = 0;
    for (const iovec& target : readers_[s].targets()) {
      auto* const into = static_cast<std::byte*>(target.iov_base);
      const std::size_t some = std::min({target.iov_len, on_the_way_[s].size(), most - got});
      const auto begin = on_the_way_[s].begin();
      std::copy_n(begin, some, into);
      on_the_way_[s].erase(begin, begin + static_cast<std::ptrdiff_t>(some));
      got += some;
    }
    return got == 0 ? nullptr : readers_[s].arrived(got);
  }

  CommState comm_;
  std::mt19937 random_;
  Scheduler scheduler_;
  TcpOutgoingPool pool_;
  TcpOutbox outbox_;
  Mailbox mailbox_;
  TcpInbox inbox_;
  std::vector<TcpReader> readers_;
  std::vector<std::deque<std::byte>> on_the_way_;  // by stream
  std::vector<std::size_t> written_;               // bytes by stream
  std::deque<Data> messages_;
  std::deque<Send> sends_;
};

void settle(Pair& pair) {
  for (int steps = 0; !pair.at_rest(); ++steps) {
    REQUIRE(steps < 1'000'000);
    REQUIRE(pair.step() == nullptr);
  }
}

TEST_CASE("the ends of a pair on one host use different streams for long messages", "[outbox]") {
  CHECK(stream_of_long(1, true) == 0);
  CHECK(stream_of_long(1, false) == 0);
  const int streams = GENERATE(2, 3, 4, 16);
  CHECK(stream_of_long(streams, true) != stream_of_long(streams, false));
  CHECK(stream_of_long(streams, true) < streams);
  CHECK(stream_of_long(streams, false) < streams);
}

TEST_CASE("messages keep their order on whichever streams they go", "[outbox]") {
  const int streams = GENERATE(1, 2, 4);
  const int long_stream = GENERATE(-1, 0, 1, 3);
  if (long_stream >= streams) return;
  const unsigned seed = GENERATE(1u, 2u, 3u, 4u);
  CAPTURE(streams, long_stream, seed);
  Pair pair(streams, long_stream, seed);
  std::mt19937 random(seed);
  for (int k = 0; k < 300; ++k) {
    // Runs of short ones are longer than what makes the sender leave the stream for long ones.
    const bool is_short = (k / 60) % 2 == 0 || random() % 4 != 0;
    pair.send(random() % (is_short ? 200 : 40'000));
    for (auto steps = random() % 20; steps > 0; --steps) REQUIRE(pair.step() == nullptr);
  }
  settle(pair);
  CHECK(pair.all_have_come());
}

TEST_CASE("long messages go over their stream, short ones return after a while", "[outbox]") {
  constexpr std::size_t bytes = 50'000;
  Pair pair(4, 2, 1);
  pair.send(100);
  pair.send(bytes);
  settle(pair);
  CHECK(pair.written(0) == 2 * sizeof(MessageOpening) + 100 - sizeof(Header));  // and the move
  CHECK(pair.written(2) == sizeof(MessageOpening) + bytes);
  const std::size_t before = pair.written(0);
  pair.send(100);
  settle(pair);
  CHECK(pair.written(0) == before);
  for (int k = 0; k < 40; ++k) pair.send(100);
  settle(pair);
  CHECK(pair.written(0) > before);
  CHECK(pair.written(1) == 0);
  CHECK(pair.written(3) == 0);
}

// What a reader says of frames that lie in its buffer at once.
const char* feed(TcpReader& reader, std::initializer_list<Frame> frames) {
  const iovec target = reader.targets()[0];
  const std::size_t bytes = frames.size() * sizeof(Frame);
  std::memcpy(target.iov_base, std::data(frames), bytes);
  return reader.arrived(bytes);
}

TEST_CASE("a reader does not wait for what its own stream would have to bring", "[outbox]") {
  Scheduler scheduler;
  Mailbox mailbox(scheduler, 1);
  TcpInbox inbox(mailbox, 0, 2);
  TcpReader first(inbox, 0, 0);
  TcpReader second(inbox, 1, 0);
  Frame move;
  move.type = FrameType::move;
  move.message = 1;
  Frame piece;
  piece.type = FrameType::piece;
  piece.bytes = 10;
  SECTION("a piece that only this stream could announce") {
    const bool comes_early = GENERATE(true, false);
    if (comes_early) CHECK(feed(second, {piece}) == nullptr);
    CHECK(second.stalled() == comes_early);
    CHECK(feed(first, {move}) == nullptr);
    CHECK((comes_early ? second.resume() : feed(second, {piece})) != nullptr);
  }
  SECTION("a move before the move to its stream waits") {
    Frame back = move;
    back.message = 0;
    CHECK(feed(second, {back}) == nullptr);
    CHECK(second.stalled());
    CHECK(feed(first, {move, back}) == nullptr);
    CHECK(first.stalled());
    CHECK(second.resume() == nullptr);
    CHECK(inbox.opening_stream() == 0);
    CHECK(first.resume() == nullptr);
    CHECK_FALSE(first.stalled());
  }
  SECTION("a move to a stream that there is not") {
    for (const std::uint32_t where : {2u, 1u << 31, ~0u}) {
      Frame wrong = move;
      wrong.message = where;
      TcpReader reader(inbox, 0, 0);
      CHECK(feed(reader, {wrong}) != nullptr);
    }
  }
}

}  // namespace
}  // namespace pith::test
