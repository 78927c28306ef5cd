"""Made-up DICOM segmentations."""

from __future__ import annotations

from pathlib import Path

import highdicom as hd
import numpy as np
from pydicom.dataset import Dataset, FileMetaDataset
from pydicom.sr.codedict import codes
from pydicom.uid import CTImageStorage, ExplicitVRLittleEndian, generate_uid


def sources(shape: tuple[int, ...], spacing: tuple[float, ...]) -> list[Dataset]:
    """Return the slices of an empty CT series."""
    common = {
        "StudyInstanceUID": generate_uid(), "SeriesInstanceUID": generate_uid(),
        "FrameOfReferenceUID": generate_uid(), "SOPClassUID": CTImageStorage, "Modality": "CT",
        "PatientID": "p", "PatientName": "made^up", "PatientBirthDate": "", "PatientSex": "",
        "StudyDate": "20260101", "StudyTime": "000000", "StudyID": "1", "AccessionNumber": "",
        "ReferringPhysicianName": "", "PositionReferenceIndicator": "", "SeriesNumber": 1,
        "Rows": shape[0], "Columns": shape[1], "PixelSpacing": list(spacing[:2]),
        "SliceThickness": spacing[2], "ImageOrientationPatient": [1, 0, 0, 0, 1, 0],
        "BitsAllocated": 16, "BitsStored": 16, "HighBit": 15, "PixelRepresentation": 0,
        "SamplesPerPixel": 1, "PhotometricInterpretation": "MONOCHROME2",
        "PixelData": np.zeros(shape[:2], np.uint16).tobytes(),
    }  # fmt: skip
    found = []
    for k in range(shape[2]):
        dataset = Dataset()
        dataset.file_meta = FileMetaDataset()
        dataset.file_meta.TransferSyntaxUID = ExplicitVRLittleEndian
        for name, value in common.items():
            setattr(dataset, name, value)
        dataset.SOPInstanceUID, dataset.InstanceNumber = generate_uid(), k + 1
        dataset.ImagePositionPatient = [0, 0, k * spacing[2]]
        found.append(dataset)
    return found


def write_segmentation(path: Path, mask: np.ndarray, spacing: tuple[float, ...]) -> None:
    """Write a mask (rows, columns, slices); empty slices are omitted."""
    described = hd.seg.SegmentDescription(
        segment_number=1,
        segment_label="lesion",
        segmented_property_category=codes.SCT.MorphologicallyAbnormalStructure,
        segmented_property_type=codes.SCT.Lesion,
        algorithm_type=hd.seg.SegmentAlgorithmTypeValues.MANUAL,
    )
    hd.seg.Segmentation(
        source_images=sources(mask.shape, spacing),
        pixel_array=np.moveaxis(mask, 2, 0),
        segmentation_type=hd.seg.SegmentationTypeValues.BINARY,
        segment_descriptions=[described],
        series_instance_uid=generate_uid(),
        series_number=2,
        sop_instance_uid=generate_uid(),
        instance_number=1,
        manufacturer="made up",
        manufacturer_model_name="made up",
        software_versions="1",
        device_serial_number="1",
        omit_empty_frames=True,
    ).save_as(path)
