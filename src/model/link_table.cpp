#include "model/link_table.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <iterator>
#include <optional>
#include <utility>

#include "model/nominal.hpp"

namespace pith {

namespace {

constexpr std::string_view title = "pith links 2";
constexpr std::string_view calls_name = "calls";
constexpr std::array<std::string_view, host_link_count> host_names = {"views", "copies",
                                                                      "messages"};
constexpr std::array<std::string_view, work_kind_count> work_names = {"reduce", "select", "encode",
                                                                      "decode", "cast"};
constexpr std::array<std::string_view, 2> memory_names = {"host", "cuda"};

// Takes what comes before the separator off the text.
std::string_view take(std::string_view& text, char separator) {
  const std::string_view taken = text.substr(0, text.find(separator));
  text.remove_prefix(std::min(text.size(), taken.size() + 1));
  return taken;
}

template <class Number>
std::optional<Number> number_of(std::string_view text) {
  Number number{};
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, number);
  if (error != std::errc() || stop != end) return std::nullopt;
  return number;
}

template <std::size_t count>
std::optional<std::size_t> index_in(const std::array<std::string_view, count>& names,
                                    std::string_view name) {
  const auto found = std::ranges::find(names, name);
  if (found == names.end()) return std::nullopt;
  return static_cast<std::size_t>(found - names.begin());
}

struct Line {
  std::string_view name;
  Estimated alpha;
  Estimated beta;
};

// Of the line `number`, which begins with a name.
Error wrong(std::size_t number, std::string_view name, std::string_view what) {
  return {Code::invalid_argument,
          fmt::format("saved links, line {}, \"{}\": {}", number, name, what)};
}

Expected<Line> read_line(std::string_view text, std::size_t number) {
  Line line;
  line.name = take(text, ' ');
  if (line.name.empty()) return wrong(number, "", "does not begin with a name");
  for (const auto& [one, what] : {std::pair{&line.alpha, "alpha"}, {&line.beta, "beta"}}) {
    const std::string_view value_text = take(text, ' ');
    const std::string_view log_sd_text = take(text, ' ');
    const std::optional<double> value = number_of<double>(value_text);
    const std::optional<double> log_sd = number_of<double>(log_sd_text);
    if (!value || !(*value >= 1e-18 && *value <= 1e4)) {
      return wrong(
          number, line.name,
          fmt::format("{} is \"{}\", expected seconds from 1e-18 to 1e4", what, value_text));
    }
    if (!log_sd || !(*log_sd >= 0)) {
      return wrong(number, line.name,
                   fmt::format("what is not known of {} is \"{}\", expected a number of at least 0",
                               what, log_sd_text));
    }
    *one = {*value, *log_sd};
  }
  if (!text.empty()) {
    return wrong(number, line.name, fmt::format("\"{}\" follows, expected nothing", text));
  }
  return line;
}

// "of 4 ranks on 2 hosts 89abcdef01234567"
std::string places_line(const JobPlaces& places) {
  return fmt::format("of {} {:016x}", places.text(), places.names);
}

std::optional<JobPlaces> read_places(std::string_view text) {
  JobPlaces places;
  const auto is_next = [&](std::string_view word) { return take(text, ' ') == word; };
  const auto number = [&](auto& into, int base) {
    const std::string_view word = take(text, ' ');
    const char* end = word.data() + word.size();
    const auto [stop, error] = std::from_chars(word.data(), end, into, base);
    return error == std::errc() && stop == end;
  };
  const bool is_it = is_next("of") && number(places.ranks, 10) && is_next("ranks") &&
                     is_next("on") && number(places.hosts, 10) && is_next("hosts") &&
                     number(places.names, 16) && text.empty();
  if (!is_it) return std::nullopt;
  return places;
}

void append(std::string& text, std::string_view name, const Estimated& alpha,
            const Estimated& beta) {
  fmt::format_to(std::back_inserter(text), "{} {} {} {} {}\n", name, alpha.value, alpha.log_sd,
                 beta.value, beta.log_sd);
}

void append(std::string& text, std::string_view name, const LinkEstimate& estimate) {
  if (estimate.learnt()) append(text, name, estimate.alpha(), estimate.beta());
}

KnownLink known_of(const LinkEstimate& estimate) {
  if (!estimate.learnt()) return {};
  return {estimate.alpha().value, estimate.beta().value};
}

}  // namespace

LinkTable::Works LinkTable::nominal_works(MemoryKind memory, const LinkEstimate::Options& options) {
  const bool cuda = memory == MemoryKind::cuda;
  const double start = cuda ? nominal::device_start : nominal::host_start;
  const double speed = cuda ? nominal::device_speed : 1;
  const auto work = [&](double unit) {
    return LinkEstimate(LinkCost{start, unit / speed, 0}, options);
  };
  return {work(nominal::memory.gamma), work(nominal::select_element), work(nominal::write_element),
          work(nominal::add_pair), work(nominal::memory.beta)};
}

LinkTable::LinkTable(std::size_t paths, const LinkEstimate::Options& options)
    : host_{LinkEstimate(nominal::memory, options), LinkEstimate(nominal::memory, options),
            LinkEstimate(nominal::memory, options)},
      work_{nominal_works(MemoryKind::host, options), nominal_works(MemoryKind::cuda, options)},
      paths_(std::max<std::size_t>(paths, 1), LinkEstimate(nominal::wire, options)) {}

LinkCost LinkTable::cost(const LinkEstimate& link, MemoryKind memory) const {
  const Works& works = work_[static_cast<std::size_t>(memory)];
  const LinkEstimate& reduce = works[static_cast<std::size_t>(WorkKind::reduce)];
  return {link.alpha().value, link.beta().value, reduce.beta().value};
}

// As calls among all hosts wait for it.
KnownLink LinkTable::slowest_path() const {
  KnownLink slowest;
  for (const LinkEstimate& path : paths_) {
    const KnownLink one = known_of(path);
    slowest = {std::max(slowest.alpha, one.alpha), std::max(slowest.beta, one.beta)};
  }
  return slowest;
}

KnownLinks LinkTable::known() const {
  const auto of_host = [&](HostLink link) {
    return known_of(host_[static_cast<std::size_t>(link)]);
  };
  const Works& works = work_[static_cast<std::size_t>(MemoryKind::host)];
  KnownLinks known{of_host(HostLink::views),
                   of_host(HostLink::messages),
                   slowest_path(),
                   {},
                   known_of(works[static_cast<std::size_t>(WorkKind::reduce)]).beta};
  if (calls_) known.calls = {calls_->alpha.value, calls_->beta.value};
  return known;
}

std::string LinkTable::save() const {
  std::string text = fmt::format("{}\n{}\n", title, places_line(places_));
  for (std::size_t i = 0; i < host_.size(); ++i) append(text, host_names[i], host_[i]);
  for (std::size_t memory = 0; memory < work_.size(); ++memory) {
    for (std::size_t kind = 0; kind < work_kind_count; ++kind) {
      append(text, fmt::format("{}/{}", work_names[kind], memory_names[memory]),
             work_[memory][kind]);
    }
  }
  for (std::size_t i = 0; i < paths_.size(); ++i)
    append(text, fmt::format("path/{}", i), paths_[i]);
  if (calls_) append(text, calls_name, calls_->alpha, calls_->beta);
  return text;
}

LinkEstimate* LinkTable::find(std::string_view name) {
  const std::string_view first = take(name, '/');
  if (name.empty()) {
    const std::optional<std::size_t> link = index_in(host_names, first);
    return link ? &host_[*link] : nullptr;
  }
  if (first == "path") {
    const std::optional<std::size_t> which = number_of<std::size_t>(name);
    return which && *which < paths_.size() ? &paths_[*which] : nullptr;
  }
  const std::optional<std::size_t> kind = index_in(work_names, first);
  const std::optional<std::size_t> memory = index_in(memory_names, name);
  return kind && memory ? &work_[*memory][*kind] : nullptr;
}

Error LinkTable::restore(std::string_view text) {
  if (take(text, '\n') != title) {
    return {Code::invalid_argument, fmt::format("saved links do not begin with \"{}\"", title)};
  }
  const std::string_view whose = take(text, '\n');
  const std::optional<JobPlaces> places = read_places(whose);
  if (!places) {
    return {Code::invalid_argument,
            fmt::format("saved links, line 2: is \"{}\", expected as in \"{}\"", whose,
                        places_line({4, 2, 0x89abcdef01234567}))};
  }
  std::vector<Line> lines;
  while (!text.empty()) {
    const Expected<Line> line = read_line(take(text, '\n'), lines.size() + 3);
    if (!line) return line.error();
    lines.push_back(*line);
  }
  places_ = *places;
  for (const Line& line : lines) {
    if (line.name == calls_name) calls_ = {line.alpha, line.beta};
    if (LinkEstimate* estimate = find(line.name)) estimate->restore(line.alpha, line.beta);
  }
  return {};
}

}  // namespace pith
