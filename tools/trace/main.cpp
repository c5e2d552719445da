// pith-trace: who sent what to whom, and when, in one collective call.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>

#include "picture.hpp"
#include "simulate.hpp"
#include "tools/files.hpp"
#include "tools/version.hpp"

namespace {

using namespace pith_trace;
using pith::Code;
using pith::Error;
using pith::Expected;

struct Options {
  std::vector<std::string> files;
  bool simulated = false;
  Simulation simulation;
  std::uint32_t call = 0;  // 0: the last of those with the most bytes
  bool list = false;
  std::string out = "trace";
  std::size_t most_messages = 20000;
};

Error write(const std::string& path, const std::string& text) {
  if (pith_tools::write_file(path, text)) return {};
  return {Code::system, fmt::format("{} cannot be written", path)};
}

Expected<std::vector<std::string>> texts_of(const Options& options) {
  if (options.simulated) return simulate(options.simulation);
  std::vector<std::string> texts;
  for (const std::string& path : options.files) {
    Expected<std::string> text = pith_tools::read_file(path);
    if (!text) return text.error();
    texts.push_back(std::move(*text));
  }
  return texts;
}

void print_summary(const Picture& picture, const Options& options) {
  fmt::print("{}: {:.3f} us, {} messages\n", picture.title, picture.end_us,
             picture.messages.size());
  if (picture.unpaired != 0) {
    fmt::print("{} sends and receives have no other end in these traces\n", picture.unpaired);
  }
  constexpr std::size_t most_lines = 64;
  for (std::size_t r = 0; r < std::min(picture.ranks.size(), most_lines); ++r) {
    const RankTrace& rank = picture.ranks[r];
    fmt::print("rank {}: {} bytes sent{}\n", rank.rank, picture.bytes_sent(rank.rank),
               rank.dropped == 0 ? "" : fmt::format(", {} older steps not kept", rank.dropped));
  }
  fmt::print("wrote {0}.json (chrome://tracing, ui.perfetto.dev) and {0}.svg\n", options.out);
}

void print_calls(const std::vector<CallInfo>& calls) {
  for (const CallInfo& call : calls) {
    fmt::print("call {}: {}, {} bytes, {:.3f} us\n", call.number, call.name, call.bytes, call.us);
  }
}

// The default call: programs end with barriers and small messages, which are of no interest.
const CallInfo& widest(const std::vector<CallInfo>& calls) {
  const CallInfo* found = &calls.front();
  for (const CallInfo& call : calls) {
    if (call.bytes >= found->bytes) found = &call;
  }
  return *found;
}

Error run(const Options& options) {
  const Expected<std::vector<std::string>> texts = texts_of(options);
  if (!texts) return texts.error();
  std::vector<RankTrace> ranks;
  for (std::size_t i = 0; i < texts->size(); ++i) {
    const std::string name =
        options.simulated ? fmt::format("simulated rank {}", i) : options.files[i];
    Expected<RankTrace> rank = read_trace((*texts)[i], name);
    if (!rank) return rank.error();
    ranks.push_back(std::move(*rank));
  }
  const std::vector<CallInfo> calls = complete_calls(ranks);
  if (calls.empty()) {
    return {Code::invalid_argument, "no call is in the traces of all ranks from begin to end"};
  }
  if (options.list) {
    print_calls(calls);
    return {};
  }
  const std::uint32_t call = options.call != 0 ? options.call : widest(calls).number;
  const Expected<Picture> picture = picture_of(std::move(ranks), call);
  if (!picture) return picture.error();
  if (Error error = write(options.out + ".json", chrome_json(*picture))) return error;
  if (Error error = write(options.out + ".svg", svg(*picture, options.most_messages))) {
    return error;
  }
  print_summary(*picture, options);
  return {};
}

void add_simulation(CLI::App& app, Simulation& simulation) {
  const std::map<std::string, double> units = {{"s", 1}, {"ms", 1e-3}, {"us", 1e-6}, {"ns", 1e-9}};
  const CLI::AsNumberWithUnit seconds(units);
  const CLI::AsSizeValue size(false);
  app.add_option("--sim", simulation.algorithm, "no files: simulate this, as allreduce:ring");
  app.add_option("--ranks", simulation.ranks, "simulated ranks")->check(CLI::Range(1, 4096));
  app.add_option("--bytes", simulation.bytes, "of the vector, or of each rank's block: 64K, 1M")
      ->transform(size);
  app.add_option("--alpha", simulation.link.alpha, "a message's latency: 10us")
      ->transform(seconds)
      ->check(CLI::NonNegativeNumber);
  app.add_option("--beta", simulation.link.beta, "seconds a byte on the wire: 1e-9")
      ->check(CLI::NonNegativeNumber);
  app.add_option("--gamma", simulation.link.gamma, "seconds a byte of a reduction")
      ->check(CLI::NonNegativeNumber);
  app.add_option("--chunk", simulation.chunk_bytes, "bytes of a chunk, as PITH_CHUNK")
      ->transform(size);
  app.add_option("--lanes", simulation.lanes, "chunks in flight")->check(CLI::Range(1, 8));
  app.add_option("--root", simulation.root, "of a collective that has one");
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app(
      "Draws one collective call: who sent what to whom, and when. Record calls by\n"
      "PITH_TRACE=prefix, then: pith-trace prefix.rank*.jsonl");
  Options options;
  app.add_option("files", options.files, "the traces of all ranks of a communicator");
  add_simulation(app, options.simulation);
  app.add_option("--call", options.call,
                 "number of the call; else the last of those with the most bytes");
  app.add_flag("--list", options.list, "only list the calls that all ranks have");
  app.add_option("-o,--out", options.out, "writes OUT.json and OUT.svg")->capture_default_str();
  app.add_option("--most-messages", options.most_messages, "arrows in the picture")
      ->capture_default_str();
  app.set_version_flag("--version", pith_tools::version_of("pith-trace"));
  CLI11_PARSE(app, argc, argv);
  options.simulated = app.count("--sim") > 0;
  Error error;
  if (options.simulated != options.files.empty()) {
    error = Error(Code::invalid_argument, "expected either files of traces or --sim");
  } else {
    error = run(options);
  }
  if (error) fmt::print(stderr, "pith-trace: {}\n", error.message());
  return error ? 1 : 0;
}
