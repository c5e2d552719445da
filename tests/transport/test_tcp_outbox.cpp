// Which streams carry what one end sends.
#include <algorithm>
#include <bit>
#include <vector>

#include "catch.hpp"
#include "core/scheduler.hpp"
#include "transport/tcp/tcp_outbox.hpp"

namespace pith::test {
namespace {

constexpr double near_s = 50e-6;
constexpr std::size_t cut_bytes = 100'000;
constexpr std::size_t piece_bytes = 60'000;

// What has been written to each stream of one outbox.
class Streams {
 public:
  Streams(int streams, StreamSet used)
      : outbox_(pool_, scheduler_, {cut_bytes, piece_bytes}, streams),
        written_(static_cast<std::size_t>(streams)) {
    outbox_.use(used);
  }

  void send(std::size_t bytes) {
    data_.resize(bytes);
    message_.header.length = static_cast<std::uint32_t>(bytes);
    message_.data = data_.data();
    outbox_.push(message_);
    while (!outbox_.empty()) {
      for (std::size_t s = 0; s < written_.size(); ++s) write_some(s);
    }
  }

  std::size_t written(std::size_t stream) const { return written_[stream]; }

 private:
  void write_some(std::size_t s) {
    constexpr std::size_t most = 7'000;
    std::size_t bytes = 0;
    for (const iovec& part : outbox_.next(static_cast<int>(s))) bytes += part.iov_len;
    bytes = std::min(bytes, most);
    if (bytes == 0) return;
    written_[s] += bytes;
    outbox_.wrote(static_cast<int>(s), bytes);
  }

  Scheduler scheduler_;
  TcpOutgoingPool pool_;
  TcpOutbox outbox_;
  std::vector<std::size_t> written_;
  std::vector<std::byte> data_;
  Send message_;
};

TEST_CASE("the ends of a pair have as many streams each, and none in common") {
  const int rails = GENERATE(1, 2, 3);
  const int streams = GENERATE(2, 4, 6, 8, 12, 16);
  if (streams % (2 * rails) != 0) return;
  CAPTURE(rails, streams);
  const StreamSet higher = streams_of_end(streams, rails, true, near_s);
  const StreamSet lower = streams_of_end(streams, rails, false, near_s);
  CHECK((higher & lower) == 0);
  CHECK((higher | lower) == (StreamSet{1} << streams) - 1);
  for (int rail = 0; rail < rails; ++rail) {
    StreamSet of_rail = 0;
    for (int s = rail; s < streams; s += rails) of_rail |= StreamSet{1} << s;
    CHECK(std::popcount(higher & of_rail) == std::popcount(lower & of_rail));
  }
}

TEST_CASE("the ends share all streams where there are few, and over a far link") {
  const bool higher = GENERATE(true, false);
  CHECK(streams_of_end(1, 1, higher, near_s) == all_streams);
  CHECK(streams_of_end(3, 2, higher, near_s) == all_streams);
  CHECK(streams_of_end(4, 1, higher, 20e-3) == all_streams);
  CHECK(streams_of_end(4, 1, higher, 0) != all_streams);  // the kernel does not tell
}

TEST_CASE("pieces go to the streams of this end, announcements to the first") {
  const bool higher = GENERATE(true, false);
  const StreamSet used = streams_of_end(4, 1, higher, near_s);
  Streams streams(4, used);
  streams.send(cut_bytes - 1);
  CHECK(streams.written(0) == sizeof(MessageOpening) + cut_bytes - 1);
  constexpr std::size_t bytes = 1'000'000;
  streams.send(bytes);
  std::size_t of_others = 0;
  for (std::size_t s = 1; s < 4; ++s) {
    const bool is_used = ((used >> s) & 1) != 0;
    CHECK((streams.written(s) != 0) == is_used);
    of_others += streams.written(s);
  }
  CHECK(streams.written(0) + of_others > cut_bytes + bytes);
  const bool is_mostly_elsewhere = of_others > bytes * 99 / 100;
  CHECK(is_mostly_elsewhere == !higher);
}

}  // namespace
}  // namespace pith::test
