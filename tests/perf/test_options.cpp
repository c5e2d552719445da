// The command line: sizes, names, and that every refusal names the flag and the value.
#include <CLI/CLI.hpp>
#include <string>
#include <vector>

#include "catch.hpp"
#include "perf/frame/options.hpp"

using namespace pith_perf;

namespace {

Options parsed(const std::vector<std::string>& arguments) {
  CLI::App app;
  Options options;
  RawOptions raw;
  add_options(app, options, raw);
  std::vector<std::string> reversed(arguments.rbegin(), arguments.rend());
  app.parse(reversed);
  finish_options(options, raw);
  return options;
}

std::string refusal(const std::vector<std::string>& arguments) {
  try {
    parsed(arguments);
  } catch (const CLI::ParseError& error) {
    return error.what();
  }
  return {};
}

bool has(const std::string& text, const std::string& word) {
  return text.find(word) != std::string::npos;
}

}  // namespace

TEST_CASE("sizes take K, M and G", "[perf]") {
  CHECK(parse_size("0") == 0);
  CHECK(parse_size("8") == 8);
  CHECK(parse_size("64K") == 64 << 10);
  CHECK(parse_size("64k") == 64 << 10);
  CHECK(parse_size("1.5M") == 3 << 19);
  CHECK(parse_size("2G") == std::size_t{2} << 30);
  CHECK(parse_size("16MiB") == 16 << 20);
  CHECK(parse_size("16KB") == 16 << 10);
  for (const char* text : {"", "K", "8x", "-1", "nan", "8KK", "8 K", "1e300"}) {
    INFO(text);
    CHECK_FALSE(parse_size(text).has_value());
  }
}

TEST_CASE("defaults are those of nccl-tests", "[perf]") {
  const Options options = parsed({});
  CHECK(options.min_bytes == std::size_t{32} << 20);
  CHECK(options.max_bytes == std::size_t{32} << 20);
  CHECK(options.step_bytes == std::size_t{1} << 20);
  CHECK(options.iters == 20);
  CHECK(options.warmup_iters == 1);
  CHECK(options.check_iters == 1);
  CHECK(options.average == Average::mean);
  CHECK(options.types == std::vector<pithDataType_t>{pithFloat32});
  CHECK(options.ops == std::vector<pithRedOp_t>{pithSum});
  CHECK_FALSE(options.registered);
}

TEST_CASE("a refusal names the flag and the value", "[perf]") {
  const std::vector<std::vector<std::string>> cases = {
      {"--minbytes", "9z"},  {"--maxbytes", "-1"},   {"--stepbytes", "x"}, {"--op", "summ"},
      {"--datatype", "f33"}, {"--root", "one"},      {"--memory", "gpu"},  {"--compress", "topq"},
      {"--cudagraph", "2"},  {"--average", "7"},     {"--blocking", "4"},  {"--iters", "0"},
      {"--ranks", "0"},      {"--nthreads", "-2"},   {"--check", "-1"},    {"--timeout", "-5"},
      {"--unalign", "-1"},   {"--output_file", "x"}, {"--agg_iters", "0"}};
  for (const auto& arguments : cases) {
    INFO(arguments[0] << " " << arguments[1]);
    const std::string text = refusal(arguments);
    CHECK(has(text, arguments[0]));
    CHECK(has(text, arguments[1]));
  }
  CHECK(has(refusal({"--compress", "topk:density=3"}), "density is \"3\""));
  CHECK(has(refusal({"--compress", "topk", "-d", "int8"}), "--datatype"));
  CHECK(has(refusal({"--compress", "topk", "-o", "max"}), "--op"));
  CHECK(has(refusal({"-o", "band"}), "an integer --datatype"));
  CHECK(has(refusal({"--compress", "topk", "-m", "2"}), "--agg_iters"));
  CHECK(has(refusal({"--data", "somewhere"}), "--data"));
  CHECK(has(refusal({"--minbytes", "2M", "--maxbytes", "1M"}), "--minbytes"));
  CHECK(has(refusal({"-b", "0", "-e", "8", "-f", "2"}), "--minbytes"));
  CHECK(has(refusal({"-b", "0", "-e", "8", "-i", "0"}), "--stepbytes"));
  CHECK(has(refusal({"--ranks", "512", "-t", "4"}), "2048"));
  CHECK(has(refusal({"-n", "5", "-I", "1", "-K", "5"}), "--per_iter_skip"));
  CHECK_FALSE(refusal({"--no-such-flag"}).empty());
}
