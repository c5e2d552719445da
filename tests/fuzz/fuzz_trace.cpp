// Files of traces, as pith-trace is given them: read, put together and drawn. A form feed stands
// between the files of two ranks.
#include <fmt/format.h>

#include "fuzz_target.hpp"
#include "picture.hpp"

namespace pith::fuzz {

namespace {

std::string trace_of(int rank, int ranks) {
  std::string text =
      fmt::format(R"({{"pith_trace":1,"rank":{},"ranks":{},"dropped":0,"wall_offset":{}}})"
                  "\n",
                  rank, ranks, 1000 * rank);
  const int peer = (rank + 1) % ranks;
  text += R"({"id":1,"op":"call","name":"allreduce","algorithm":"ring","call":3,"bytes":64,)"
          R"("begin":100,"end":9000})"
          "\n";
  text += fmt::format(
      R"({{"id":2,"op":"send","call":3,"peer":{},"lane":1,"step":2,"bytes":32,"begin":200,)"
      R"("end":300,"waits":[1]}})"
      "\n",
      peer);
  text += fmt::format(
      R"({{"id":3,"op":"receive","call":3,"peer":{},"lane":1,"step":2,"bytes":32,"begin":200,)"
      R"("end":900,"buffer":1,"offset":8}})"
      "\n",
      peer);
  return text + R"({"id":4,"op":"kernel","name":"add","call":0,"bytes":32,"begin":900,"end":950})"
                "\n";
}

}  // namespace

void run(std::span<const std::uint8_t> input) {
  std::vector<pith_trace::RankTrace> ranks;
  for (std::string_view rest = text_of(input); !rest.empty() && ranks.size() < 8;) {
    const std::size_t end = std::min(rest.find('\f'), rest.size());
    Expected<pith_trace::RankTrace> rank =
        pith_trace::read_trace(std::string(rest.substr(0, end)), "a file");
    if (rank) ranks.push_back(std::move(*rank));
    rest.remove_prefix(std::min(end + 1, rest.size()));
  }
  const std::vector<pith_trace::CallInfo> calls = pith_trace::complete_calls(ranks);
  if (calls.empty()) return;
  const Expected<pith_trace::Picture> picture =
      pith_trace::picture_of(std::move(ranks), calls.back().number);
  if (!picture) return;
  for (const pith_trace::Message& message : picture->messages) {
    const auto at = [&](int rank) -> const pith_trace::RankTrace& {
      expect(rank >= 0 && static_cast<std::size_t>(rank) < picture->ranks.size());
      return picture->ranks[static_cast<std::size_t>(rank)];
    };
    expect(message.send < at(message.from).steps.size());
    expect(message.receive < at(message.to).steps.size());
  }
  expect(!pith_trace::chrome_json(*picture).empty());
  expect(!pith_trace::svg(*picture, 10).empty());
}

std::vector<std::string> seeds() {
  return {trace_of(0, 1), trace_of(0, 2) + '\f' + trace_of(1, 2)};
}

}  // namespace pith::fuzz
