// pith-explain: what every algorithm would cost for a call, which one the library takes, and why.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>

#include "answer.hpp"
#include "attach.hpp"
#include "collectives/coded/wire_coding.hpp"
#include "follow.hpp"
#include "report.hpp"
#include "tools/files.hpp"
#include "tools/version.hpp"

namespace {

using namespace pith_explain;
using pith::Code;
using pith::Error;
using pith::Expected;

// As given on the command line.
struct Options {
  std::string collective = "allreduce";
  std::string bytes = "4M";
  std::string table;
  int ranks = 8;
  int hosts = 1;
  std::string link;
  std::string links;
  double alpha = NAN;  // not given
  double beta = NAN;
  double gamma = NAN;
  bool views = false;
  bool oversubscribed = false;
  bool devices = false;
  std::string compress;
  std::string svg;
  bool json = false;
  std::string log;
  bool follow = false;
  std::string attach;
  std::string id;
};

void add_log_options(CLI::App& app, Options& options) {
  CLI::Option* const log =
      app.add_option("--log", options.log,
                     "instead of all this, what a job has measured and chosen: the file that its\n"
                     "PITH_EXPLAIN_LOG names");
  app.add_flag("--follow", options.follow, "prints it anew as the job replaces it, until its end")
      ->needs(log);
  CLI::Option* const attach = app.add_option(
      "--attach", options.attach,
      "HOST:PORT: the same of a job that runs, as it tells it at its control port,\n"
      "which rank 0 logs with PITH_LOG=info. The secret is found as a rank finds it, by\n"
      "the environment of any rank: PITH_RANK, PITH_SIZE, PITH_ROOT, PITH_SECRET");
  app.add_option("--id", options.id, "or in this file, which holds the job's pithUniqueId")
      ->needs(attach);
}

void add_options(CLI::App& app, Options& options) {
  const CLI::AsNumberWithUnit seconds(
      std::map<std::string, double>{{"s", 1}, {"ms", 1e-3}, {"us", 1e-6}, {"ns", 1e-9}});
  app.add_option("--collective", options.collective, "as in PITH_ALGO")->capture_default_str();
  CLI::Option* const bytes =
      app.add_option("--bytes", options.bytes, "of the vector, or of each rank's block: 64K, 4M")
          ->capture_default_str();
  app.add_option("--table", options.table, "LO:HI: sizes from LO to HI, each twice the last")
      ->excludes(bytes);
  app.add_option("--ranks", options.ranks)->check(CLI::Range(2, 65536))->capture_default_str();
  app.add_option("--hosts", options.hosts, "that the ranks are spread over evenly")
      ->check(CLI::Range(1, 65536))
      ->capture_default_str();
  app.add_option("--link", options.link,
                 "shm, 10g (default), 1g or 100m, and perhaps a delay: 1g,+5ms");
  app.add_option(
         "--links", options.links,
         "measured ones instead, as saved by pith-info --links --save FILE or by a job with\n"
         "PITH_SAVE_LINKS=FILE: between hosts the slowest")
      ->excludes("--link");
  app.add_option("--alpha", options.alpha, "a message's latency, instead of the link's: 10us")
      ->transform(seconds)
      ->check(CLI::NonNegativeNumber);
  app.add_option("--beta", options.beta, "time of a byte on the wire, instead of the link's: 8ns")
      ->transform(seconds)
      ->check(CLI::NonNegativeNumber);
  app.add_option("--gamma", options.gamma, "time of a byte of a reduction: 0.1ns")
      ->transform(seconds)
      ->check(CLI::NonNegativeNumber);
  app.add_flag("--views", options.views,
               "ranks reach each other's memory; costs are still those of messages");
  app.add_flag("--oversubscribed", options.oversubscribed, "a host has more ranks than cores");
  app.add_flag("--devices", options.devices, "every rank uses a CUDA device");
  app.add_option("--compress", options.compress,
                 "a spec as topk:density=0.01: its forms, too; of allgather, reduce_scatter,\n"
                 "broadcast and alltoall one that codes values, as int8");
  app.add_option("--svg", options.svg, "writes a picture of cost by size to this file");
  app.add_flag("--json", options.json, "prints JSON instead of text");
  add_log_options(app, options);
}

Error wrong(std::string_view flag, std::string_view value, std::string_view expected) {
  return {Code::invalid_argument, fmt::format("{} is {}, expected {}", flag, value, expected)};
}

Expected<Link> link_of(const Options& options) {
  if (options.links.empty()) {
    return parse_link("--link", options.link.empty() ? "10g" : options.link);
  }
  const Expected<std::string> text = pith_tools::read_file(options.links);
  if (!text) return text.error();
  return saved_link(*text, options.links, options.hosts, options.devices);
}

Error read_link(const Options& options, Question& question) {
  const Expected<Link> link = link_of(options);
  if (!link) return link.error();
  question.link = link->cost;
  question.views = options.views || link->shared_memory;
  if (!std::isnan(options.alpha)) question.link.alpha = options.alpha;
  question.link.message = std::min(question.link.message, question.link.alpha / 2);
  if (!std::isnan(options.beta)) question.link.beta = options.beta;
  if (!std::isnan(options.gamma)) question.link.gamma = options.gamma;
  if (question.views && options.hosts > 1) {
    return wrong("--hosts", std::to_string(options.hosts),
                 fmt::format("1 with {}", options.views ? "--views" : "--link shm"));
  }
  return {};
}

Error read_compression(const Options& options, Question& question) {
  if (options.compress.empty()) return {};
  const bool moves = has_coded_form(question.collective);
  if (!moves && question.collective != pith::Collective::allreduce) {
    return wrong("--collective", options.collective,
                 "allreduce, allgather, reduce_scatter, broadcast or alltoall with --compress");
  }
  const Expected<pith::Spec> spec = pith::Spec::parse(options.compress);
  if (!spec) return spec.error();
  if (moves) {
    const auto coding = pith::WireCoding::of(*spec);
    if (!coding) return coding.error();
  }
  question.compress = *spec;
  return {};
}

Error read(const Options& options, Question& question) {
  const auto collective = parse_collective("--collective", options.collective);
  if (!collective) return collective.error();
  const Expected<std::size_t> bytes = parse_size("--bytes", options.bytes);
  if (!bytes) return bytes.error();
  question.collective = *collective;
  question.bytes = *bytes;
  question.ranks = options.ranks;
  question.hosts = options.hosts;
  question.oversubscribed = options.oversubscribed;
  question.devices = options.devices;
  if (options.hosts > options.ranks) {
    return wrong("--hosts", std::to_string(options.hosts),
                 fmt::format("at most --ranks, {}", options.ranks));
  }
  if (Error error = read_link(options, question)) return error;
  return read_compression(options, question);
}

std::vector<SizedAnswer> answers_of(Question question, const pith::Model& model, Sizes sizes) {
  std::vector<SizedAnswer> answers;
  for (const std::size_t bytes : doubled(sizes)) {
    question.bytes = bytes;
    answers.push_back({bytes, answer(question, model)});
  }
  return answers;
}

Error write(const std::string& path, const std::string& content) {
  if (pith_tools::write_file(path, content)) return {};
  return {Code::system, fmt::format("--svg is {}, which cannot be written", path)};
}

// Text, JSON, or a picture beside the text.
Error show_log(const Options& options, bool names_collective) {
  const Expected<ChoiceRecord> record = load_choices(options.log);
  if (!record) return record.error();
  if (!options.svg.empty()) {
    const Expected<std::string> picture =
        svg(*record, names_collective ? options.collective : most_timed(*record));
    if (!picture) return picture.error();
    if (Error error = write(options.svg, *picture)) return error;
  }
  if (options.json) {
    fmt::print("{}", json_of(*record));
  } else {
    print(*record);
  }
  return {};
}

// A flag that is given and not allowed; empty: there is none.
std::string odd_flag(const CLI::App& app, std::initializer_list<std::string_view> allowed) {
  for (const CLI::Option* option : app.get_options()) {
    std::string name = option->get_name();
    if (option->count() > 0 && std::ranges::find(allowed, name) == allowed.end()) return name;
  }
  return "";
}

// As of a variable of the shell that is not set.
Error no_empty_values(const CLI::App& app) {
  for (const CLI::Option* option : app.get_options()) {
    if (option->count() > 0 && option->results().front().empty()) {
      return wrong(option->get_name(), "empty", "a value");
    }
  }
  return {};
}

Error run_recorded(const CLI::App& app, const Options& options) {
  if (!options.attach.empty()) {
    const std::string odd = odd_flag(app, {"--attach", "--id"});
    if (!odd.empty()) return wrong("--attach", options.attach, "no other flag with it but --id");
    return attach({options.attach, options.id});
  }
  const std::string odd = options.follow
                              ? odd_flag(app, {"--log", "--follow"})
                              : odd_flag(app, {"--log", "--svg", "--json", "--collective"});
  if (!odd.empty()) {
    return wrong(
        "--log", options.log,
        fmt::format("no {} with it: --follow alone, or --svg, --json and --collective", odd));
  }
  if (options.follow) return follow_choices(options.log);
  return show_log(options, app.get_option("--collective")->count() > 0);
}

Error run(const Options& options) {
  Question question;
  if (Error error = read(options, question)) return error;
  const auto model = model_of(question);
  if (!model) return model.error();
  const bool by_size = !options.table.empty();
  const Expected<Sizes> sizes = parse_sizes("--table", by_size ? options.table : "8:64M");
  if (!sizes) return sizes.error();
  const Sizes printed = by_size ? *sizes : Sizes{question.bytes, question.bytes};
  const std::vector<SizedAnswer> answers = answers_of(question, **model, printed);
  if (!options.svg.empty()) {
    const std::string picture = svg(question, answers_of(question, **model, *sizes));
    if (Error error = write(options.svg, picture)) return error;
  }
  if (options.json) {
    fmt::print("{}", json(question, answers));
  } else if (by_size) {
    fmt::print("{}\n{}", heading(question), table(answers));
  } else {
    fmt::print("{}", text(question, answers.front().answer));
  }
  return {};
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app(
      "What every algorithm would cost for a call by its cost function, which one the library\n"
      "takes, and why not the others. PITH_ALGO and other settings count as in a program. Links "
      "are\n"
      "ideal: what the library's rules know beyond that (caches, ranks that share cores) is not "
      "in\n"
      "the costs.");
  Options options;
  add_options(app, options);
  app.set_version_flag("--version", pith_tools::version_of("pith-explain"));
  CLI11_PARSE(app, argc, argv);
  const bool recorded = !options.log.empty() || !options.attach.empty();
  Error error = no_empty_values(app);
  if (!error) error = recorded ? run_recorded(app, options) : run(options);
  if (error) fmt::print(stderr, "pith-explain: {}\n", error.message());
  return error ? 1 : 0;
}
