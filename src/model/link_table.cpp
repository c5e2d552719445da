#include "model/link_table.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <iterator>
#include <optional>

#include "model/nominal.hpp"

namespace pith {

namespace {

constexpr std::string_view title = "pith links 1";
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

std::optional<Line> read_line(std::string_view text) {
  Line line;
  line.name = take(text, ' ');
  for (Estimated* one : {&line.alpha, &line.beta}) {
    const std::optional<double> value = number_of<double>(take(text, ' '));
    const std::optional<double> log_sd = number_of<double>(take(text, ' '));
    if (!value || !log_sd) return std::nullopt;
    if (!(*value > 0 && std::isfinite(*value) && *log_sd >= 0)) return std::nullopt;
    *one = {*value, *log_sd};
  }
  if (line.name.empty() || !text.empty()) return std::nullopt;
  return line;
}

void append(std::string& text, std::string_view name, const LinkEstimate& estimate) {
  if (!estimate.learnt()) return;
  const Estimated alpha = estimate.alpha();
  const Estimated beta = estimate.beta();
  fmt::format_to(std::back_inserter(text), "{} {} {} {} {}\n", name, alpha.value, alpha.log_sd,
                 beta.value, beta.log_sd);
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

std::string LinkTable::save() const {
  std::string text = fmt::format("{}\n", title);
  for (std::size_t i = 0; i < host_.size(); ++i) append(text, host_names[i], host_[i]);
  for (std::size_t memory = 0; memory < work_.size(); ++memory) {
    for (std::size_t kind = 0; kind < work_kind_count; ++kind) {
      append(text, fmt::format("{}/{}", work_names[kind], memory_names[memory]),
             work_[memory][kind]);
    }
  }
  for (std::size_t i = 0; i < paths_.size(); ++i)
    append(text, fmt::format("path/{}", i), paths_[i]);
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
  std::vector<Line> lines;
  while (!text.empty()) {
    const std::optional<Line> line = read_line(take(text, '\n'));
    if (!line) {
      return {Code::invalid_argument,
              fmt::format("saved links, line {}: not a name, two values and how well each is known",
                          lines.size() + 2)};
    }
    lines.push_back(*line);
  }
  for (const Line& line : lines) {
    if (LinkEstimate* estimate = find(line.name)) estimate->restore(line.alpha, line.beta);
  }
  return {};
}

}  // namespace pith
