// The flight recorder by itself: what it keeps, in which order, and what its lines say.
#include <array>
#include <string>
#include <vector>

#include "catch.hpp"
#include "control/call_recorder.hpp"
#include "core/pair_message.hpp"

using namespace pith;

namespace {

constexpr std::size_t chunk = 1000;
constexpr std::uint64_t second_ns = 1'000'000'000;

CollectiveArgs sum_of(std::size_t count) {
  CollectiveArgs args;
  args.count = count;
  return args;
}

void begin(CallRecorder& recorder, std::uint32_t number) {
  recorder.begin(number, 1000 + number, sum_of(number));
}

// Calls 1 to `count`, all of which end well.
void run(CallRecorder& recorder, std::uint32_t count) {
  for (std::uint32_t number = 1; number <= count; ++number) {
    begin(recorder, number);
    recorder.end(number, true);
  }
}

Message message(int peer, bool sends, std::size_t count, std::uint32_t number = 0) {
  Message made;
  made.count = count;
  made.type = DType::f32;
  made.peer = peer;
  made.sends = sends;
  made.number = number;
  return made;
}

Awaited of_call(int peer, std::uint32_t call, std::uint32_t step, std::uint16_t lane = 0) {
  return {peer, Tag{0, call, step, lane}};
}

Awaited of_pair(int peer, std::uint32_t number, bool sends, std::uint32_t piece = 0) {
  return {peer, Tag{0, number, piece, pair_lane}, sends};
}

CallRecorder::AwaitedList list_of(const CallRecorder& recorder, const std::vector<Awaited>& all) {
  CallRecorder::AwaitedList list(recorder);
  for (const Awaited& one : all) list.add(one);
  return list;
}

std::string oldest(const CallRecorder& recorder) {
  const std::optional<CallNote> note = recorder.oldest_unfinished();
  return note ? title_of(*note) : "none";
}

using Lines = std::vector<std::string>;

}  // namespace

TEST_CASE("the recorder keeps the last 64 calls, in order", "[call-recorder]") {
  CallRecorder recorder;
  CHECK(recorder.lines(chunk, chunk).empty());
  run(recorder, 100);
  const Lines lines = recorder.lines(chunk, chunk);
  REQUIRE(lines.size() == 64);
  for (std::size_t i = 0; i < lines.size(); ++i) {
    const std::string number = std::to_string(37 + i);
    CHECK(lines[i] == "call " + number + ": allreduce of " + number +
                          " float, sum, done 0.0 s ago, after 0.0 s");
  }
  CHECK(recorder.last_completed() == 100);
  CHECK(oldest(recorder) == "none");
}

TEST_CASE("the recorder finds a call until another has its place", "[call-recorder]") {
  CallRecorder recorder;
  CHECK_FALSE(recorder.find(0));
  CHECK_FALSE(recorder.find(1));
  run(recorder, 64);
  REQUIRE(recorder.find(1));
  CHECK(recorder.find(1)->number == 1);
  CHECK(recorder.find(1)->digest == 1001);
  CHECK(recorder.find(1)->text == "allreduce of 1 float, sum");
  begin(recorder, 65);
  CHECK_FALSE(recorder.find(1));
  CHECK(recorder.find(65)->digest == 1065);
  CHECK(recorder.find(2));
}

TEST_CASE("the oldest call that has not ended, also behind a gap", "[call-recorder]") {
  CallRecorder recorder;
  for (std::uint32_t number = 1; number <= 5; ++number) begin(recorder, number);
  CHECK(oldest(recorder) == "call 1 (allreduce of 1 float, sum)");
  recorder.end(1, true);
  recorder.end(3, true);
  recorder.end(4, true);
  CHECK(oldest(recorder) == "call 2 (allreduce of 2 float, sum)");
  CHECK(recorder.last_completed() == 1);
  recorder.end(2, true);
  CHECK(oldest(recorder) == "call 5 (allreduce of 5 float, sum)");
  CHECK(recorder.last_completed() == 4);
  recorder.end(5, true);
  CHECK(oldest(recorder) == "none");
  CHECK(recorder.last_completed() == 5);
}

TEST_CASE("numbers that wrap around are later ones", "[call-recorder]") {
  CallRecorder recorder;
  begin(recorder, call_numbers);
  begin(recorder, 1);
  CHECK(oldest(recorder) == "call 2147483647 (allreduce of 2147483647 float, sum)");
  recorder.end(call_numbers, true);
  CHECK(oldest(recorder) == "call 1 (allreduce of 1 float, sum)");
}

TEST_CASE("lines say how far a call has got", "[call-recorder]") {
  CallRecorder recorder;
  for (std::uint32_t number = 1; number <= 4; ++number) begin(recorder, number);
  recorder.end(1, true);
  // Of call 3 none; the last one is a message of a pair, though its number is that of call 4.
  const std::array<Awaited, 4> awaited = {of_call(2, 2, 5), of_call(1, 2, 7, 3), of_call(0, 4, 0),
                                          of_call(9, 4, 1, pair_lane)};
  recorder.tell_awaited(awaited);
  CHECK(recorder.lines(chunk, chunk) ==
        Lines{"call 1: allreduce of 1 float, sum, done 0.0 s ago, after 0.0 s",
              "call 2: allreduce of 2 float, sum, running for 0.0 s, waits for step 5 of rank 2 "
              "and step 7 of rank 1 in lane 3",
              "call 3: allreduce of 3 float, sum, running for 0.0 s, waits for no message",
              "call 4: allreduce of 4 float, sum, running for 0.0 s, waits for step 0 of rank "
              "0"});
  // Where there are more than there is room for, nothing is said of calls that may be among them.
  const std::vector<Awaited> many(20, of_call(2, 2, 1));
  recorder.tell_awaited(many);
  CHECK(recorder.lines(chunk, chunk)[2] == "call 3: allreduce of 3 float, sum, running for 0.0 s");
}

TEST_CASE("whom the oldest call waits for, however much is awaited", "[call-recorder]") {
  CallRecorder recorder;
  CHECK(list_of(recorder, {}).waits_for() == -1);
  CHECK(list_of(recorder, {of_call(1, 2, 0), of_pair(1, 0, false)}).waits_for() == -1);
  begin(recorder, 3);
  begin(recorder, 4);
  // Call 3 waits for a kernel. Who is to send to call 4 may wait for this rank in call 3.
  CHECK(list_of(recorder, {of_call(2, 4, 0), of_pair(1, 3, false)}).waits_for() == -1);
  std::vector<Awaited> all(20, of_call(2, 4, 0));
  all.push_back(of_call(5, 3, 7));
  all.push_back(of_call(6, 3, 8));
  const CallRecorder::AwaitedList list = list_of(recorder, all);
  CHECK(list.waits_for() == 5);
  CHECK(list.some().size() == CallRecorder::most_awaited);
  recorder.tell_awaited(list.some());
  CHECK(recorder.lines(chunk, chunk)[0] ==
        "call 3: allreduce of 3 float, sum, running for 0.0 s, waits for step 7 of rank 5");
}

TEST_CASE("whom the oldest message waits for, however much is awaited", "[call-recorder]") {
  CallRecorder recorder;
  std::vector<Message> group = {message(5, true, 10)};
  std::vector<Awaited> all;
  for (std::uint32_t number = 0; number < 16; ++number) {
    group.push_back(message(1, false, 10, number));
    all.push_back(of_pair(1, number, false));
  }
  const CallRecorder::Batch batch = recorder.begin(group);
  const std::array<Message, 1> later = {message(2, false, 10)};
  recorder.begin(later);
  all.insert(all.begin(), of_pair(2, 0, false));

  // Rank 1 may wait for rank 5, which takes nothing.
  all.push_back(of_pair(5, 0, true));
  const CallRecorder::AwaitedList stuck = list_of(recorder, all);
  CHECK(stuck.waits_for() == 5);
  recorder.tell_awaited(stuck.some());
  CHECK(recorder.lines(chunk, chunk)[0] ==
        "send of 10 float to rank 5, running for 0.0 s, 0 of 40 bytes have gone");
  CHECK(oldest(recorder) == "send of 10 float to rank 5");

  // The send has gone, though the group has not ended.
  all.pop_back();
  const CallRecorder::AwaitedList gone = list_of(recorder, all);
  CHECK(gone.waits_for() == 1);
  recorder.tell_awaited(gone.some());
  CHECK(oldest(recorder) == "recv of 10 float from rank 1");

  // The group waits for none of them any more, but for a copy; then it has ended.
  CHECK(list_of(recorder, {of_pair(2, 0, false)}).waits_for() == -1);
  recorder.end(batch, true);
  CHECK(list_of(recorder, {of_pair(2, 0, false)}).waits_for() == 2);
}

TEST_CASE("messages of pairs: which, when, how far", "[call-recorder]") {
  CallRecorder recorder;
  recorder.tell_time(10 * second_ns);
  const std::array<Message, 2> both = {message(1, true, 10), message(2, false, 600, 4)};
  const std::array<Message, 1> next = {message(2, false, 700, 5)};
  const CallRecorder::Batch first = recorder.begin(both);
  const CallRecorder::Batch second = recorder.begin(next);
  CHECK(oldest(recorder) == "send of 10 float to rank 1");
  recorder.tell_time(13 * second_ns);
  recorder.end(first, true);
  CHECK(oldest(recorder) == "recv of 700 float from rank 2");
  CHECK_FALSE(recorder.find(0));  // they are no calls of all ranks
  CHECK(recorder.last_completed() == 0);
  recorder.tell_time(14 * second_ns);
  CHECK(recorder.lines(chunk, chunk) ==
        Lines{"send of 10 float to rank 1, done 1.0 s ago, after 3.0 s",
              "recv of 600 float from rank 2, done 1.0 s ago, after 3.0 s",
              "recv of 700 float from rank 2, running for 4.0 s"});
  // Two whole pieces have come, and the third is waited for; not another pair's, nor a call's.
  const std::array<Awaited, 3> awaited = {of_call(1, 5, 1, pair_lane), of_call(2, 5, 1),
                                          of_call(2, 5, 3, pair_lane)};
  recorder.tell_awaited(awaited);
  CHECK(recorder.lines(chunk, chunk).back() ==
        "recv of 700 float from rank 2, running for 4.0 s, 2000 of 2800 bytes have come");
  recorder.end(second, false);
  CHECK(recorder.lines(chunk, chunk).back() ==
        "recv of 700 float from rank 2, failed 0.0 s ago, after 4.0 s");
  CHECK(oldest(recorder) == "none");
}

TEST_CASE("of messages of pairs the last 64 are kept, and calls go before them",
          "[call-recorder]") {
  CallRecorder recorder;
  std::vector<Message> many;
  for (int i = 0; i < 100; ++i) many.push_back(message(i, true, 1));
  const CallRecorder::Batch batch = recorder.begin(many);
  begin(recorder, 1);
  CHECK(oldest(recorder) == "call 1 (allreduce of 1 float, sum)");
  Lines lines = recorder.lines(chunk, chunk);
  REQUIRE(lines.size() == 65);
  CHECK(lines[0] == "call 1: allreduce of 1 float, sum, running for 0.0 s");
  CHECK(lines[1] == "send of 1 float to rank 36, running for 0.0 s");
  CHECK(lines[64] == "send of 1 float to rank 99, running for 0.0 s");
  recorder.end(1, true);

  // They run on where later ones have taken their places.
  const CallRecorder::Batch later = recorder.begin(many);
  recorder.end(later, true);
  CHECK(oldest(recorder) == "send or recv");
  recorder.end(batch, true);
  CHECK(oldest(recorder) == "none");
  lines = recorder.lines(chunk, chunk);
  REQUIRE(lines.size() == 65);
  CHECK(lines[64] == "send of 1 float to rank 99, done 0.0 s ago, after 0.0 s");
}
