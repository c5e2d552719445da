// Receives or messages in buckets by the hash of their peer and tag. Each bucket is a FIFO list.
// Nodes are linked by their `next` and not owned.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "core/operation.hpp"

namespace pith {

template <class Node>
class TagBuckets {
 public:
  void append(int peer, const Tag& tag, Node& node) {
    List& list = list_of(peer, tag);
    node.next = nullptr;
    (list.tail ? list.tail->next : list.head) = &node;
    list.tail = &node;
  }

  // Unlinks the first match in the bucket of this peer and tag; null: there is none.
  template <class Match>
  Node* take(int peer, const Tag& tag, const Match& match) {
    return unlink(list_of(peer, tag), match);
  }
  // Unlinks each node that matches, then calls f(node).
  template <class Match, class F>
  void take_all(const Match& match, const F& f) {
    for (List& list : lists_) {
      while (Node* found = unlink(list, match)) f(*found);
    }
  }

  template <class Match>
  const Node* find(const Match& match) const {
    for (const List& list : lists_) {
      for (const Node* node = list.head; node; node = node->next) {
        if (match(*node)) return node;
      }
    }
    return nullptr;
  }
  template <class F>
  void for_each(const F& f) const {
    for (const List& list : lists_) {
      for (const Node* node = list.head; node; node = node->next) f(*node);
    }
  }

 private:
  struct List {
    Node* head = nullptr;
    Node* tail = nullptr;
  };
  static constexpr std::size_t buckets = 64;

  List& list_of(int peer, const Tag& tag) {
    std::uint64_t mix = tag.call * 0x9E3779B1u + tag.step * 0x85EBCA77u + tag.comm * 0xC2B2AE3Du;
    mix += static_cast<std::uint64_t>(peer) * 0x27D4EB2Fu + tag.lane * 0x165667B1u;
    return lists_[(mix ^ (mix >> 15) ^ (mix >> 7)) & (buckets - 1)];
  }

  template <class Match>
  static Node* unlink(List& list, const Match& match) {
    Node* previous = nullptr;
    for (Node* node = list.head; node; previous = node, node = node->next) {
      if (!match(*node)) continue;
      (previous ? previous->next : list.head) = node->next;
      if (list.tail == node) list.tail = previous;
      node->next = nullptr;
      return node;
    }
    return nullptr;
  }

  std::array<List, buckets> lists_{};
};

}  // namespace pith
