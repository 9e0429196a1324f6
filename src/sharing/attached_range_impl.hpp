// What an AttachedRange is inside. How it is made: attaching.cpp.
#pragma once

#include <string>
#include <vector>

#include "cuvmm/sharing/attached_range.hpp"
#include "sharing/chunk_import.hpp"

namespace cuvmm::sharing {

// A failure of what an attached range has others do, told as one of the call that its user made. What a driver has
// answered stays the driver's.
[[nodiscard]] Failure told_as(std::string_view call, std::string_view name, Failure failure);

class AttachedRange::Impl {
 public:
  Impl(std::string name, DescriptorSocket publisher, ChunkImporter importer, const Terms& terms, MappedRange range);

  // Connected to the publisher, welcome or not yet: asks for terms, imports, reserves, maps, grants and tells. `place`
  // is the driver's.
  [[nodiscard]] static Result<std::unique_ptr<Impl>> attach(const Driver& driver, DescriptorSocket publisher,
                                                            std::string_view name, const Locality& place,
                                                            const AttachOptions& options, const Deadline& deadline);

  RangeNews poll();
  RangeNews wait(const Deadline& deadline);
  Result<std::size_t> follow(const Deadline& deadline);

  [[nodiscard]] const std::string& name() const noexcept { return name_; }
  [[nodiscard]] std::size_t size() const noexcept { return mapped_.bytes; }
  [[nodiscard]] AccessRights rights() const noexcept { return rights_; }
  [[nodiscard]] std::uint64_t generation() const noexcept { return mapped_.generation; }
  [[nodiscard]] const DescriptorSocket& socket() const noexcept { return socket_; }
  [[nodiscard]] MappedRange& range() noexcept { return range_; }

 private:
  void take(const Result<Message>& message);
  void end(const Failure& why);
  [[nodiscard]] bool follows(const Standing& standing) const noexcept;
  [[nodiscard]] std::optional<Failure> nothing_comes();
  [[nodiscard]] Result<std::vector<ImportedChunk>> import_up_to(const Standing& wanted, const Deadline& deadline);
  [[nodiscard]] RangeNews news() const noexcept;
  [[nodiscard]] Failure no_news() const;
  void tell_mapped(const Deadline& deadline);
  // All of them or none.
  [[nodiscard]] static Result<void> map_all(MappedRange& range, const std::vector<ImportedChunk>& chunks);

  std::string name_;
  DescriptorSocket socket_;  // outlives the range: the lease ends when nothing is mapped any more
  ChunkImporter importer_;
  AccessRights rights_;
  Standing mapped_;  // what is mapped here
  Standing told_;    // what the publisher has told last
  bool gone_ = false;
  MappedRange range_;
};

}  // namespace cuvmm::sharing
