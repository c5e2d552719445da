// The last times of calls of one kind. Their median and spread are not moved by a few late ones.
// Logarithms, since noise is relative.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <span>

namespace pith {

class RecentTimes {
 public:
  void add(double seconds) { logs_[count_++ % kept] = std::log(seconds); }
  // All that were added.
  std::size_t count() const { return count_; }
  // Of a logarithm of seconds; 0: there was no time yet.
  double median() const { return median_of(logs_); }
  // Not before there is a time.
  double least() const { return std::ranges::min(std::span(logs_).first(held())); }
  // The standard deviation of a logarithm, by the median distance from the median [F. Hampel, The
  // influence curve and its role in robust estimation, J. Amer. Statist. Assoc. 69, 1974].
  double deviation() const {
    constexpr double least = 0.02;
    constexpr double of_normal = 1.4826;
    std::array<double, kept> distances;
    const double middle = median();
    for (std::size_t i = 0; i < held(); ++i) distances[i] = std::abs(logs_[i] - middle);
    return std::max(of_normal * median_of(distances), least);
  }
  // Of the median.
  double doubt() const {
    constexpr double of_median = 1.25;
    return of_median * deviation() / std::sqrt(double(std::max<std::size_t>(held(), 1)));
  }

 private:
  static constexpr std::size_t kept = 16;
  std::size_t held() const { return std::min(count_, kept); }
  double median_of(std::array<double, kept> values) const {
    if (count_ == 0) return 0;
    const std::span<double> all = std::span(values).first(held());
    const auto middle = all.begin() + static_cast<std::ptrdiff_t>(all.size() / 2);
    std::ranges::nth_element(all, middle);
    return *middle;
  }

  std::array<double, kept> logs_{};
  std::size_t count_ = 0;
};

}  // namespace pith
