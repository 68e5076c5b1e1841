// Versions: places of their bytes, and of the bases of their deltas.
#include "ckptd/catalog/values.h"
#include "ckptd/catalog/verified.h"
#include "formats/codec.h"

namespace ckptd::values {
namespace {

// False unless the list has exactly the places with a codec.
bool take_encoded(const Version& version, std::vector<FragmentPlace>& places) {
  const auto* list = version.encoded();
  flatbuffers::uoffset_t at = 0;
  for (size_t i = 0; i < places.size(); ++i) {
    if (places[i].codec == 0) continue;
    if (list == nullptr || at == list->size() || list->Get(at)->place() != i) return false;
    FragmentPlace& place = places[i];
    place.encoded_crc32c = list->Get(at)->crc32c();
    place.encoded_bytes = list->Get(at)->bytes();
    const Status possible =
        ckpt::check_encoding(place.codec, place.length, place.encoded_bytes, place.encoded_crc32c);
    if (!possible.ok()) return false;
    ++at;
  }
  return list == nullptr || at == list->size();
}

// False if an entry names an unknown place, or no commit.
bool take_shared(const Version& version, std::vector<FragmentPlace>& places) {
  if (version.shared() == nullptr) return true;
  for (const SharedPlace* shared : *version.shared()) {
    if (shared->place() >= places.size() || shared->lineage() == 0) return false;
    places[shared->place()].written_by = {shared->lineage(), shared->step()};
  }
  return true;
}

std::vector<PlaceOfBase> encode_bases(const std::vector<FragmentPlace>& places) {
  std::vector<PlaceOfBase> bases;
  for (uint32_t i = 0; i < places.size(); ++i) {
    if (!places[i].base) continue;
    const BasePlace& base = *places[i].base;
    bases.emplace_back(i, base.crc32c, base.codec, base.encoded_crc32c, base.segment,
                       base.extent_offset, base.payload_offset, base.encoded_bytes,
                       base.written_by.lineage, base.deltas, base.written_by.step);
  }
  return bases;
}

// False unless the list has exactly the deltas, and each base is no delta and names a commit.
bool take_bases(const Version& version, std::vector<FragmentPlace>& places) {
  const auto* list = version.bases();
  flatbuffers::uoffset_t at = 0;
  for (size_t i = 0; i < places.size(); ++i) {
    if (!ckpt::is_delta(places[i].codec)) continue;
    if (list == nullptr || at == list->size() || list->Get(at)->place() != i) return false;
    const PlaceOfBase& base = *list->Get(at);
    const Status possible = ckpt::check_encoding(base.codec(), places[i].length,
                                                 base.encoded_bytes(), base.encoded_crc32c());
    if (!possible.ok() || ckpt::is_delta(base.codec()) || base.lineage() == 0) return false;
    places[i].base = {.crc32c = base.crc32c(),
                      .codec = base.codec(),
                      .segment = base.segment(),
                      .extent_offset = base.extent_offset(),
                      .payload_offset = base.payload_offset(),
                      .encoded_crc32c = base.encoded_crc32c(),
                      .encoded_bytes = base.encoded_bytes(),
                      .written_by = {base.lineage(), base.step()},
                      .deltas = base.deltas()};
    ++at;
  }
  return list == nullptr || at == list->size();
}

// Returns no list instead of an empty one, because most values have none.
template <typename Struct>
flatbuffers::Offset<flatbuffers::Vector<const Struct*>> list_of(
    flatbuffers::FlatBufferBuilder& builder, const std::vector<Struct>& list) {
  if (list.empty()) return {};
  return builder.CreateVectorOfStructs(list);
}

}  // namespace

std::string encode(const VersionValue& version) {
  std::vector<Place> places;
  std::vector<EncodedPlace> encoded;
  std::vector<SharedPlace> shared;
  places.reserve(version.places.size());
  for (const FragmentPlace& place : version.places) {
    if (place.shared()) {
      shared.emplace_back(places.size(), place.written_by.lineage, place.written_by.step);
    }
    if (place.codec != 0) {
      encoded.emplace_back(places.size(), place.encoded_crc32c, place.encoded_bytes);
    }
    places.emplace_back(place.offset, place.length, place.segment, place.extent_offset,
                        place.payload_offset, place.crc32c, place.codec);
  }
  flatbuffers::FlatBufferBuilder builder;
  const auto list = builder.CreateVectorOfStructs(places);
  const auto encoded_list = list_of(builder, encoded);
  const auto shared_list = list_of(builder, shared);
  const auto bases_list = list_of(builder, encode_bases(version.places));
  return finish(
      builder, CreateVersion(builder, version.epoch, version.attempt, version.bytes, version.crc32c,
                             version.damaged, list, encoded_list, shared_list, bases_list));
}

std::optional<VersionValue> decode_version(std::string_view value) {
  const Verified<Version> version(value);
  if (!version) return std::nullopt;
  VersionValue decoded{version->epoch(),  version->attempt(), version->bytes(),
                       version->crc32c(), version->damaged(), {}};
  if (version->places() == nullptr) return decoded;
  decoded.places.reserve(version->places()->size());
  for (const Place* place : *version->places()) {
    decoded.places.push_back({place->offset(), place->length(), place->crc32c(), place->codec(),
                              place->segment(), place->extent_offset(), place->payload_offset(), 0,
                              0});
  }
  if (!take_encoded(*version, decoded.places)) return std::nullopt;
  if (!take_shared(*version, decoded.places)) return std::nullopt;
  if (!take_bases(*version, decoded.places)) return std::nullopt;
  return decoded;
}

}  // namespace ckptd::values
